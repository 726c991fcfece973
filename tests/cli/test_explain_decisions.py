"""``fedmuster explain`` of runs without rounds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.experiments.tampering import changing
from tests.report.roundless_runs import play

from fedmuster.cli.explain import explain as explain_command
from fedmuster.core import state as states
from fedmuster.core.errors import ConfigError, FedmusterError, StateError
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.replay import play_again
from fedmuster.report.explain import (
    DecisionMoment,
    explain,
    find_run,
    from_journal,
    from_replay,
    suffices,
)
from fedmuster.report.job_history import JobHistory, read_jobs
from fedmuster.report.points import Point, point_at, point_of_round

ROUNDS = 30


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("explain"), "bsfl", rounds=ROUNDS)


@pytest.fixture(scope="module")
def jobs(run: Path) -> JobHistory:
    found = read_jobs(JournalReader(run), ROUNDS)
    assert found is not None
    return found


def told(*arguments: str | Path) -> str:
    done = CliRunner().invoke(explain_command, [str(a) for a in arguments])
    if isinstance(done.exception, FedmusterError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def moment_at(run: Path, time_seconds: float) -> DecisionMoment:
    cell = find_run(run)
    point = point_at(cell, time_seconds)
    again = play_again(run, point.round, decision=point.number)
    moment = from_replay(cell, point, again)
    assert isinstance(moment, DecisionMoment)
    return moment


def running(jobs: JobHistory, number: int) -> dict[int, float]:
    """Who was at work when a decision was made, and since when."""
    now = jobs.asked_at_seconds[jobs.decision == number][0]
    ends = np.where(jobs.open, np.inf, jobs.ended_at_seconds)
    out = (jobs.decision < number) & (ends > now)
    return dict(zip(jobs.client[out].tolist(), jobs.asked_at_seconds[out].tolist(), strict=True))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.55, 1.0])
def test_a_decision_at_a_time(run: Path, jobs: JobHistory, share: float) -> None:
    """Who was asked, who was busy and since when: as the journal's jobs have it."""
    end = float(JournalReader(run).columns["seconds"].sum())
    moment = moment_at(run, share * end)
    latest = jobs.decision[jobs.asked_at_seconds <= share * end].max()
    assert moment.decision == latest
    asked = jobs.of_decision(latest)
    assert moment.cohort.tolist() == asked.client.tolist()
    assert moment.at_seconds == asked.asked_at_seconds[0]
    assert moment.aggregations == asked.version[0]
    busy = running(jobs, latest)
    assert np.flatnonzero(moment.absent["busy"]).tolist() == sorted(busy)
    for client, since in busy.items():
        assert moment.busy_since_seconds[client] == since


def test_chosen_passed_over_busy_and_offline(run: Path, jobs: JobHistory) -> None:
    """A decision in which there is a client of each kind, and a verdict on each."""
    for number in range(10, int(jobs.decision.max())):
        if not (jobs.decision == number).any():
            continue
        at = float(jobs.asked_at_seconds[jobs.decision == number][0])
        moment = moment_at(run, at)
        if moment.absent["offline"].any() and len(moment.passed_over):
            break
    chosen, passed = int(moment.cohort[0]), int(moment.passed_over[0])
    busy = int(np.flatnonzero(moment.absent["busy"])[0])
    offline = int(np.flatnonzero(moment.absent["offline"])[0])
    verdicts = {who: explain(moment, client=who).verdict for who in (chosen, passed, busy, offline)}
    assert len(set(verdicts.values())) == 4
    assert f"{moment.busy_since_seconds[busy]:.6g} s" in str(verdicts[busy])
    for who in (chosen, passed):
        assert "score" in str(verdicts[who])
    assert moment.available[[chosen, passed, busy, offline]].tolist() == [True, True, False, False]


def test_the_last_decision_before_an_aggregation(run: Path, jobs: JobHistory) -> None:
    cell = find_run(run)
    for aggregation in (1, 9, ROUNDS):
        point = point_of_round(cell, aggregation)
        assert point.number == jobs.decision[jobs.version < aggregation].max()
    by_time = point_at(cell, point.at_seconds)
    assert by_time.number == point.number


def test_the_command(run: Path, jobs: JobHistory) -> None:
    before = JournalReader(run).digest()
    at = float(jobs.asked_at_seconds[jobs.decision == 20][0])
    client = int(jobs.client[jobs.decision == 20][0])
    out = told(run, "--time", repr(at), "--client", str(client))
    assert f"Client {client}" in out
    assert "confidence_bonus" in out
    assert told(run, "--round", "10")
    assert JournalReader(run).digest() == before


@pytest.mark.parametrize(
    "when",
    [
        ("--time", "-0.5"),
        ("--time", "1e9"),
        ("--time", "nan"),
        ("--round", "0"),
        ("--round", str(ROUNDS + 1)),
        (),
        ("--round", "1", "--time", "1"),
    ],
)
def test_when_there_is_nothing_to_explain(run: Path, when: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        told(run, *when)


def test_before_the_first_decision(tmp_path: Path) -> None:
    """Nobody is there at first; the first decision is later."""
    world = {
        "name": "bsfl-groups",
        "num_clients": 4,
        "cohort_size": 2,
        "availability": {"name": "bernoulli", "probability": 0.2},
    }
    for seed in range(20):
        folder = play(
            tmp_path, "random", seed=seed, rounds=3, world=world, federation={"buffer": 1}
        )
        found = read_jobs(JournalReader(folder), 3)
        assert found is not None
        if (first := float(found.asked_at_seconds.min())) > 0:
            break
    with pytest.raises(ConfigError, match=f"{first:g}"):
        point_at(find_run(folder), first / 2)
    assert point_at(find_run(folder), first).number == 1


def test_a_replay_is_held_against_the_jobs(run: Path, tmp_path: Path) -> None:
    """The same clients, but one was asked a moment later in the journal."""
    folder = play(tmp_path, "bsfl", rounds=12)
    play_again(folder, 12, decision=5)
    with changing(folder) as database:
        (image,) = database.execute("SELECT npz FROM jobs WHERE round = 6").fetchone()
        arrays, _ = states.from_bytes(image, source="")
        changed = {name: values.copy() for name, values in arrays.items()}
        changed["asked_at_seconds"][0] += 1e-9
        database.execute("UPDATE jobs SET npz = ? WHERE round = 6", (states.to_bytes(changed, {}),))
    play_again(folder, 5, decision=5)  # the rows before are as they were
    with pytest.raises(StateError, match="aggregation 6"):
        play_again(folder, 12, decision=5)


def test_a_decision_must_ask_the_clients_of_the_journal(run: Path) -> None:
    cell = find_run(run)
    point = point_of_round(cell, 9)
    again = play_again(run, point.round, decision=point.number)
    assert point.decision is not None
    from_replay(cell, point, again)
    others = replace(point.decision, client=point.decision.client + 1)
    with pytest.raises(StateError, match=f"decision {point.number}"):
        from_replay(cell, Point(point.round, others), again)


def test_the_journal_alone_tells_who_was_at_work(run: Path, jobs: JobHistory) -> None:
    cell = find_run(run)
    point = point_of_round(cell, 12)
    moment = from_journal(cell, point)
    assert not suffices(moment)
    assert point.number is not None
    assert np.flatnonzero(moment.absent["busy"]).tolist() == sorted(running(jobs, point.number))
    assert moment.cohort.tolist() == jobs.of_decision(point.number).client.tolist()
    assert told(run, "--round", "12", "--from", "journal")


def test_rounds_have_a_time_too(tmp_path: Path) -> None:
    folder = play(tmp_path, "bsfl-rounds", rounds=6)
    ends = np.cumsum(JournalReader(folder).columns["seconds"])
    cell = find_run(folder)
    for time_seconds, number in ((0.0, 1), (ends[2] - 1e-6, 3), (ends[2], 4), (ends[5], 6)):
        assert point_at(cell, float(time_seconds)) == Point(number)


def test_clients_that_rest(tmp_path: Path) -> None:
    """With a pace, a client whose answer the server holds, or has just used, is not asked."""
    federation = {"concurrency": 5, "trigger": {"name": "pace"}}
    folder = play(tmp_path, "random", rounds=20, federation=federation)
    found = read_jobs(JournalReader(folder), 20)
    assert found is not None
    rested = 0
    for number in (10, 15, 20):
        now = float(found.asked_at_seconds[found.decision == number][0])
        moment = moment_at(folder, now)
        assert moment.decision == number
        held = found.answered & (found.ended_at_seconds <= now) & (found.row > moment.aggregations)
        used_now = found.row == moment.aggregations
        may_rest = set(found.client[held | (found.answered & used_now)].tolist())
        resting = np.flatnonzero(moment.absent.get("resting", np.zeros(14, dtype=np.bool_)))
        assert set(resting.tolist()) <= may_rest
        assert set(found.client[held].tolist()) <= {
            *resting.tolist(),
            *np.flatnonzero(moment.absent["offline"] | moment.absent["busy"]).tolist(),
        }
        rested += len(resting)
        for client in resting.tolist():
            assert explain(moment, client=client).verdict is not None
    assert rested > 0


def test_at_an_edge_server(tmp_path: Path) -> None:
    """A decision is one server's: others' clients are out of its reach."""
    more: dict[str, Any] = {
        "world": {"name": "edge-network", "num_clients": 12},
        "federation": {"concurrency": 3, "buffer": 1},
    }
    folder = play(tmp_path, "cocs", rounds=12, **more)
    cell = find_run(folder)
    point = point_of_round(cell, 9)
    moment = from_replay(cell, point, play_again(folder, point.round, decision=point.number))
    assert point.decision is not None
    assert moment.edges is not None
    assert set(moment.edges.tolist()) == set(point.decision.edge.tolist())
    assert len(set(moment.edges.tolist())) == 1
    assert moment.budget is not None
    others = np.delete(moment.budget, moment.edges[0])
    assert not others.any()
    assert moment.absent["out_of_reach"].any()
    explain(moment, client=int(np.flatnonzero(moment.absent["out_of_reach"])[0]))
