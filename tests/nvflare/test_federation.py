"""Rounds and jobs of a FLARE federation, with a real record and without FLARE's processes."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare.apis")  # "nvflare" is also the name of this folder

from fedmuster.core.errors import ConfigError, InUseError, StateError
from fedmuster.core.policy import POLICIES, Policy, as_policy
from fedmuster.core.staleness import PolynomialWorth
from fedmuster.experiments.journal import JournalReader
from fedmuster.federation.settings import Federation as Roundless
from fedmuster.nvflare.federation import EndedError, Federation, Reply
from fedmuster.nvflare.job_federation import EndedJob, JobFederation, OpenJob, judged
from fedmuster.nvflare.roundless import mean_change
from fedmuster.nvflare.settings import Settings, promised
from fedmuster.privacy.ledger import audit
from fedmuster.privacy.ledger.reading import summarise

SITES = ["site-1", "site-2", "site-3", "site-4"]
MODEL = {"w": np.zeros(3)}


def settings(folder: Path, **changed: Any) -> Settings:
    values: dict[str, Any] = {
        "policy": as_policy("bsfl", owner="test"),
        "cohort_size": 2,
        "folder": folder,
        "seed": 0,
        "deadline_seconds": 10.0,
        "over_selection": 1.0,
        "wait_seconds": 1.0,
        "pull_seconds": 2.0,
    }
    return Settings(**{**values, **changed})


def reply(value: float = 1.0, *, kind: str = "FULL", **metrics: Any) -> Reply:
    return Reply({"w": np.full(3, value)}, metrics, kind)


def opened(folder: Path, **changed: Any) -> Federation:
    federation = Federation.start(settings(folder, **changed), rounds=10)
    federation.model = dict(MODEL)
    for site in SITES:
        federation.clients.asks_for_work(site)
    return federation


def play(federation: Federation, replies: Any, *, commit: bool = True) -> list[str]:
    round_ = federation.choose(federation.free(SITES))
    federation.sent()
    for name in round_.names:
        answer = replies(name)
        if answer is not None:
            federation.taken(name)
            federation.arrived(round_, name, answer)
    federation.end_round()
    if commit:
        federation.commit({})
    return round_.names


def test_a_client_is_there_when_it_has_asked_for_work(tmp_path: Path) -> None:
    federation = Federation.start(settings(tmp_path), rounds=1)
    assert not federation.free(SITES).any()
    federation.clients.asks_for_work("site-3")
    assert federation.free(SITES).tolist() == [False, False, True, False]
    federation.close()


def test_silent_clients_wait_until_they_ask(tmp_path: Path) -> None:
    federation = opened(tmp_path)
    names = play(federation, lambda name: None)
    free = federation.free(SITES)
    assert {SITES[client] for client in np.flatnonzero(free)} == set(SITES) - set(names)
    federation.clients.asks_for_work(names[0])
    assert federation.free(SITES).sum() == 3
    federation.close()


def test_bad_replies_cost_only_themselves(tmp_path: Path) -> None:
    federation = opened(tmp_path, cohort_size=4)
    answers = {
        "site-1": reply(np.nan),
        "site-2": Reply({"w": np.zeros(7)}, {}, "FULL"),
        "site-3": Reply(None, None, "FULL", "the client failed"),
        "site-4": reply(2.0, loss=0.5),
    }
    round_ = federation.choose(federation.free(SITES))
    federation.sent()
    assert [federation.arrived(round_, name, answers[name]) for name in SITES] == [
        False,
        False,
        False,
        True,
    ]
    assert not federation.arrived(round_, "site-4", reply(9.0))  # a second answer
    assert not federation.arrived(round_, "stranger", reply())
    assert federation.end_round() == 1
    assert not federation.arrived(round_, "site-1", reply())  # too late
    federation.commit({})
    federation.close()
    journal = JournalReader(tmp_path)
    assert journal.rejected[0].tolist() == [0, 1, 2]
    assert journal.columns["num_completed"].tolist() == [1]
    assert journal.columns["train_loss"].tolist() == [0.5]


def test_models_and_differences_are_not_mixed(tmp_path: Path) -> None:
    federation = opened(tmp_path, cohort_size=4)
    kinds = {"site-1": "DIFF", "site-2": "FULL", "site-3": "FULL", "site-4": "FULL"}
    play(federation, lambda name: reply(kind=kinds[name]))
    federation.clients.asks_for_work("site-1")
    round_ = federation.choose(federation.free(SITES))
    federation.sent()
    accepted = {name: federation.arrived(round_, name, reply(kind=kinds[name])) for name in SITES}
    assert accepted == {"site-1": False, "site-2": True, "site-3": True, "site-4": True}
    federation.close()


def test_time_is_the_servers_less_the_wait_for_a_pull(tmp_path: Path) -> None:
    federation = opened(tmp_path)
    at = {"began": 100.0, "taken": 101.5, "now": 105.0}
    assert federation.answer(reply(), sent=MODEL, **at).latency_seconds == pytest.approx(3.5)
    at["taken"] = 104.0  # who takes its work late has no other excuse than two seconds
    assert federation.answer(reply(), sent=MODEL, **at).latency_seconds == pytest.approx(3.0)
    federation.close()


def test_metrics_that_a_few_leave_out(tmp_path: Path) -> None:
    federation = opened(tmp_path, cohort_size=4)
    told: dict[str, dict[str, Any]] = {
        "site-1": {"loss": 1.0},
        "site-2": {"loss": 3.0},
        "site-3": {"loss": 2.0},
    }
    play(federation, lambda name: reply(**told.get(name, {})))
    journal = JournalReader(tmp_path)
    assert journal.columns["num_completed"].tolist() == [4]
    assert journal.columns["train_loss"].tolist() == [2.0]
    federation.close()


def test_metrics_are_of_the_model_before(tmp_path: Path) -> None:
    federation = opened(tmp_path)
    play(federation, lambda name: reply(loss=4.0, acc=0.25))
    play(federation, lambda name: reply(loss=1.0, acc=0.75))
    federation.close()
    journal = JournalReader(tmp_path)
    assert journal.columns["loss"][0] == 1.0
    assert journal.columns["accuracy"][0] == 0.75
    assert np.isnan(journal.columns["loss"][1])


def test_what_was_not_committed_is_played_again_alike(tmp_path: Path) -> None:
    federation = opened(tmp_path)
    for _ in range(3):
        play(federation, lambda name: reply(loss=float(name[-1])))
    federation.model = {"w": np.array([1.0, 2.0, 3.0])}
    play(federation, lambda name: reply(), commit=True)
    lost = play(federation, lambda name: reply(), commit=False)
    federation.close()
    again = opened(tmp_path)
    assert again.saved is not None
    assert again.saved.model is not None
    assert again.rounds_done == 4
    np.testing.assert_array_equal(again.saved.model["w"], [1.0, 2.0, 3.0])
    assert play(again, lambda name: reply()) == lost
    again.close()
    assert len(JournalReader(tmp_path)) == 5


def test_another_run_is_refused(tmp_path: Path) -> None:
    federation = opened(tmp_path)
    with pytest.raises(InUseError):
        Federation.start(settings(tmp_path), rounds=10)
    play(federation, lambda name: reply())
    federation.close()
    others: list[dict[str, Any]] = [
        {"policy": as_policy("random", owner="test")},
        {"seed": 1},
        {"cohort_size": 3},
    ]
    for other in others:
        with pytest.raises(StateError):
            Federation.start(settings(tmp_path, **other), rounds=10)
    Federation.start(settings(tmp_path, deadline_seconds=99.0), rounds=20).close()


def test_a_model_of_another_round_or_gone_is_refused(tmp_path: Path) -> None:
    federation = opened(tmp_path)
    play(federation, lambda name: reply())
    play(federation, lambda name: reply())
    federation.close()
    first, second = sorted(tmp_path.glob("muster-model-*.npz"))
    image = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(StateError):
        Federation.start(settings(tmp_path), rounds=10)
    second.write_bytes(image[: len(image) // 2])
    with pytest.raises(StateError):
        Federation.start(settings(tmp_path), rounds=10)
    second.unlink()
    with pytest.raises(StateError):
        Federation.start(settings(tmp_path), rounds=10)
    second.write_bytes(image)
    Federation.start(settings(tmp_path), rounds=10).close()


_KILLED = """
import sys
from pathlib import Path
from tests.nvflare.test_federation import opened, play, reply
federation = opened(Path(sys.argv[1]))
while True:
    play(federation, lambda name: reply(loss=float(name[-1])))
"""


@pytest.mark.slow
def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    done = 0
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path)])
        while len(_cohorts(tmp_path)) < done + 5:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
        done = len(_cohorts(tmp_path))
    federation = opened(tmp_path)
    assert federation.rounds_done == len(_cohorts(tmp_path)) >= 20
    federation.close()
    assert JournalReader(tmp_path).columns["round"].tolist() == list(range(1, done + 1))


def _cohorts(folder: Path) -> list[Any]:
    try:
        return JournalReader(folder).cohorts
    except StateError:
        return []


def test_settings_that_cannot_be() -> None:
    refused: list[dict[str, Any]] = [
        {"cohort_size": 0},
        {"seed": -1},
        {"deadline_seconds": 0},
        {"deadline_seconds": "soon"},
        {"over_selection": 0.5},
        {"wait_seconds": -1},
        {"policy": as_policy("oracle", owner="test")},
        {
            "policy": as_policy("naive-mab-cs", owner="test"),
            "roundless": Roundless(concurrency=2, buffer=1),
        },
    ]
    for wrong in refused:
        with pytest.raises(ConfigError):
            settings(Path(), **wrong)


def jobs_opened(folder: Path) -> JobFederation:
    roundless = Roundless(concurrency=2, buffer=1, staleness=PolynomialWorth())
    federation = JobFederation.start(settings(folder, roundless=roundless), rounds=10)
    federation.model = dict(MODEL)
    for site in SITES:
        federation.clients.asks_for_work(site)
    return federation


def test_jobs_end_in_any_order_and_are_lost_with_the_server(tmp_path: Path) -> None:
    federation = jobs_opened(tmp_path)
    first, second = federation.ask(federation.free(SITES), 2)
    assert federation.free(SITES).sum() == 2
    federation.ended(judged(second, reply(1.0, loss=2.0)))
    assert [federation.age(ended) for ended in federation.buffered] == [0]
    federation.aggregated([True])
    federation.commit({})
    (third,) = federation.ask(federation.free(SITES), 1)
    federation.ended(judged(third, reply(np.nan)))
    assert federation.buffered == []
    federation.ended(EndedJob(job=first, at=time.monotonic()))
    assert not federation.free(SITES)[first.client]  # it has not asked for work since
    federation.ended(judged(first, reply()))  # too late
    (fourth,) = federation.ask(federation.free(SITES), 1)
    federation.ended(judged(fourth, reply(3.0, loss=1.0)))
    federation.aggregated([True])
    federation.ask(federation.free(SITES), 2)
    federation.commit({})
    federation.close()
    journal = JournalReader(tmp_path)
    assert journal.jobs is not None
    assert [rows.used.tolist() for rows in journal.jobs] == [[True], [False, False, True]]
    assert journal.jobs[1].answered.tolist() == [False, False, True]
    assert journal.jobs[1].age.tolist() == [0, 1, 0]
    assert journal.columns["seconds"].sum() == pytest.approx(federation.elapsed_seconds)
    time.sleep(1.0)
    again = jobs_opened(tmp_path)
    assert again.jobs == {}
    assert again.rounds_done == 2
    assert again.free(SITES).all()
    (fresh,) = again.ask(again.free(SITES), 1)
    again.ended(judged(fresh, reply()))
    again.aggregated([True])
    again.commit({})
    assert JournalReader(tmp_path).columns["seconds"][2] < 1.0  # not of the time in between
    assert again.rounds_done == 3
    again.close()


def job(sent: float, version: int = 0) -> OpenJob:
    return OpenJob(
        name="site-1",
        client=0,
        ticket=0,
        decision=1,
        version=version,
        sent={"w": np.full(3, sent)},
        began=0.0,
    )


def test_the_mean_of_changes_is_fedbuffs() -> None:
    # sum(w s delta) / sum(w), by hand: (10 * 1 * 2 + 30 * 0.5 * 4) / 40 = 2
    buffered = [
        EndedJob(job=job(1.0), at=0.0, reply=Reply({"w": np.full(3, 3.0)}, {}, "FULL", None, 10.0)),
        EndedJob(job=job(5.0), at=0.0, reply=Reply({"w": np.full(3, 4.0)}, {}, "DIFF", None, 30.0)),
    ]
    assert mean_change(buffered, np.array([1.0, 0.5]))["w"] == pytest.approx(np.full(3, 2.0))


def test_a_client_that_claims_all_steps_counts_as_usual() -> None:
    claims = (10.0, 10.0, 1e30)
    buffered = [
        EndedJob(job=job(0.0), at=0.0, reply=Reply({"w": np.full(3, x)}, {}, "FULL", None, steps))
        for x, steps in zip((0.0, 0.0, 3.0), claims, strict=True)
    ]
    assert mean_change(buffered, np.ones(3))["w"] == pytest.approx(np.ones(3))


def private(folder: Path, **changed: Any) -> Federation:
    promise = promised(
        'epsilon=4,mechanism={name="gaussian", clip=1.0, delta=1e-6},'
        'schedule={name="uniform", participations=3}'
    )
    return opened(folder, privacy=promise, **changed)


def test_clients_pay_before_they_are_asked(tmp_path: Path) -> None:
    federation = private(tmp_path)
    round_ = federation.choose(federation.free(SITES))
    granted = [federation.grant_for(name) for name in SITES]
    assert [grant is not None for grant in granted] == [name in round_.names for name in SITES]
    federation.close()  # as a kill: nothing of the round was committed
    spent = {a.identity: a.spent_units for a in summarise(tmp_path / "ledger.sqlite").top}
    assert {name for name, units in spent.items() if units > 0} == set(round_.names)


def test_who_has_paid_is_not_asked_for_the_round_again(tmp_path: Path) -> None:
    federation = private(tmp_path)
    play(federation, lambda name: reply(loss=1.0))
    lost = play(federation, lambda name: reply(), commit=False)
    federation.close()
    again = private(tmp_path)
    free = again.free(SITES)
    assert {SITES[client] for client in np.flatnonzero(~free)} == set(lost)
    assert not set(play(again, lambda name: reply())) & set(lost)
    again.close()
    journal = JournalReader(tmp_path)
    assert np.isnan(journal.columns["train_loss"]).all()
    assert audit(tmp_path / "ledger.sqlite", [tmp_path]).faults == []


def test_a_round_that_all_have_paid_for_is_lost(tmp_path: Path) -> None:
    federation = private(tmp_path, cohort_size=4)
    play(federation, lambda name: reply())
    play(federation, lambda name: reply(), commit=False)
    federation.close()
    again = private(tmp_path, cohort_size=4)
    assert again.free(SITES).all()  # for the round after
    again.commit({})
    assert len(play(again, lambda name: reply())) == 4
    again.close()
    assert [len(cohort) for cohort in JournalReader(tmp_path).cohorts] == [4, 0, 4]


def test_nobody_there_is_no_lost_round(tmp_path: Path) -> None:
    federation = private(tmp_path, cohort_size=2)
    lost = play(federation, lambda name: reply(), commit=False)
    federation.close()
    again = private(tmp_path, cohort_size=2)
    rest = [name for name in SITES if name not in lost]
    for present in ([], rest, SITES):
        again.free(present)
        assert again.rounds_closed == 0
    assert again.expected == 2
    again.close()


def test_privacy_ends_the_run(tmp_path: Path) -> None:
    federation = private(tmp_path, cohort_size=4)
    for _ in range(3):
        play(federation, lambda name: reply())
    with pytest.raises(EndedError):
        federation.free(SITES)
    federation.commit({}, ending="spent")
    federation.close()
    with_ending = private(tmp_path, cohort_size=4)
    assert with_ending.ending == "spent"
    with_ending.close()


def test_promises_that_cannot_be() -> None:
    promise: Any
    for promise in ("epsilon=-1", "epsilon=4,noise=seeded", {"epsilon": 4}, "epsilon"):
        with pytest.raises(ConfigError):
            promised(promise)


def test_over_selection_closes_with_enough_answers(tmp_path: Path) -> None:
    federation = opened(tmp_path, over_selection=1.5)
    round_ = federation.choose(federation.free(SITES))
    assert len(round_.names) == 3
    federation.sent()
    first, second, third = round_.names
    assert federation.arrived(round_, first, reply())
    assert not federation.has_enough
    assert not federation.arrived(round_, second, reply(np.nan))
    assert not federation.has_enough
    assert federation.arrived(round_, third, reply())
    assert federation.has_enough
    assert federation.end_round() == 2
    federation.close()


def served(name: str) -> bool:
    policy: Policy[Any] = as_policy(name, owner="test")
    return not (policy.oracle or policy.assigns_edges)


@pytest.mark.parametrize("name", sorted(filter(served, set(POLICIES) - {"lifted", "exploring"})))
def test_every_policy_chooses(tmp_path: Path, name: str) -> None:
    federation = opened(tmp_path, policy=as_policy(name, owner="test"))
    answers = {site: reply(0.5, loss=float(site[-1]), accuracy=0.5) for site in SITES[1:]}
    for _ in range(6):
        play(federation, answers.get)
        for site in SITES:
            federation.clients.asks_for_work(site)
    federation.close()
    again = opened(tmp_path, policy=as_policy(name, owner="test"))
    assert again.rounds_done == 6
    play(again, lambda site: reply())
    again.close()
