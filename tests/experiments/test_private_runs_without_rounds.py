"""Privacy without rounds: clients pay when they are asked, and each release has its own ticket."""

import io
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.faults import children
from tests.faults.children import Child
from tests.faults.watching import wrap
from tests.federation.row_values import all_jobs, loop_of, play

from fedmuster import PAUSE, Random
from fedmuster.cli import main
from fedmuster.core.records import Feedback, IntArray
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.federation import Federation, JobRows, Simulation
from fedmuster.privacy.budget import Grant, Privacy
from fedmuster.privacy.ledger import audit
from fedmuster.privacy.schedules import Listed, Uniform
from fedmuster.training.data.built_in import Digits
from fedmuster.training.models import Logistic
from fedmuster.training.training import Training
from fedmuster.worlds import ActivityTrace, EdgeNetwork, OnOff, PauseGroups

TRAINING = Training(data=Digits(train_limit=240, test_limit=40), model=Logistic(), evaluate_every=5)
SLOTS = Federation(concurrency=4, buffer=2)


def cell(**changes: Any) -> Experiment:
    settings: dict[str, Any] = {
        "policies": {"random": Random()},
        "world": PauseGroups(num_clients=12, cohort_size=4),
        "federation": SLOTS,
        "rounds": 1000,
        "seeds": (2,),
        "regret": False,
        "privacy": Privacy(epsilon=20.0, schedule=Listed(shares=(0.4, 0.3, 0.2))),
        "training": TRAINING,
    }
    return Experiment(**{**settings, **changes})


Key = tuple[int, int]
"""A decision and a client."""


def debits(folder: Path) -> dict[Key, int]:
    """Units by decision and client, straight from the file."""
    with closing(sqlite3.connect(folder / LEDGER_NAME)) as database:
        rows = database.execute(
            "SELECT round, identity, units FROM entries JOIN accounts USING (account) "
            "WHERE kind = 'debit'"
        ).fetchall()
    found = {(number, int(name.removeprefix("client-"))): units for number, name, units in rows}
    assert len(found) == len(rows)  # nobody paid twice for one decision
    return found


def keys_of(jobs: JobRows) -> list[Key]:
    return list(zip(jobs.decision.tolist(), jobs.client.tolist(), strict=True))


class Released(NamedTuple):
    """An update that left a client, and what the client had paid for it."""

    key: Key
    amount: float


def log_releases(
    simulation: Simulation[Any], happen: Callable[[Grant, IntArray], None] = lambda *_: None
) -> list[Released]:
    """What leaves clients from now on."""
    log: list[Released] = []

    def release(original: Callable[..., Any], grant: Grant, clients: IntArray, updates: Any) -> Any:
        happen(grant, clients)
        rows = np.searchsorted(grant.clients, clients)
        for client, amount in zip(clients.tolist(), grant.amounts[rows].tolist(), strict=True):
            log.append(Released((grant.round, client), amount))
        return original(grant, clients, updates)

    wrap(simulation.budget, "release", release)
    return log


def test_every_release_was_paid_for_before_by_its_own_ticket(tmp_path: Path) -> None:
    """Three times with less noise each time; jobs of several decisions train together."""
    simulation = cell().simulation(tmp_path, run="one")
    together: list[int] = []

    def is_on_disk(grant: Grant, clients: IntArray) -> None:
        assert debits(tmp_path).keys() >= {(grant.round, int(client)) for client in clients}
        together.append(grant.round)

    released = log_releases(simulation, is_on_disk)
    jobs = all_jobs(play(simulation, 1000))
    simulation.close()
    paid = debits(tmp_path)
    assert len({each.key for each in released}) == len(released) == len(paid) == 3 * 12
    assert {each.key: round(each.amount * 1e9) for each in released} == paid
    of_client = {
        client: [units for (_, k), units in sorted(paid.items()) if k == client]
        for client in range(12)
    }
    assert all(units == [8 * 10**9, 6 * 10**9, 4 * 10**9] for units in of_client.values())
    assert sorted(keys_of(jobs)) == sorted(paid)
    assert jobs.answered.all()
    assert any(later < earlier for earlier, later in pairwise(together))


@pytest.mark.parametrize(("clients", "slots", "buffer"), [(12, 4, 2), (5, 4, 3), (3, 2, 2)])
def test_a_run_ends_when_nobody_can_pay_and_the_last_have_answered(
    tmp_path: Path, clients: int, slots: int, buffer: int
) -> None:
    experiment = cell(
        world=PauseGroups(num_clients=clients, cohort_size=2),
        federation=Federation(concurrency=slots, refill=1, buffer=buffer),
        privacy=Privacy(schedule=Uniform(participations=5)),
    )
    prepare(tmp_path, experiment)
    execute(tmp_path)
    journal = JournalReader(tmp_path)
    assert journal.ending is not None
    assert journal.jobs is not None
    jobs = JobRows(
        **{
            name: np.concatenate([rows.arrays()[name] for rows in journal.jobs])
            for name in journal.jobs[0].arrays()
        }
    )
    assert sorted(keys_of(jobs)) == sorted(debits(tmp_path))
    assert np.bincount(jobs.client).tolist() == [5] * clients
    assert jobs.used.all()
    assert journal.columns["num_exhausted"][-1] == clients
    assert journal.columns["spent_max"][-1] == 10.0
    assert np.isfinite(journal.columns["accuracy"][-1])


def test_a_run_ends_when_those_who_can_pay_never_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client is always there and soon has no privacy left; the other is away for a year."""
    monkeypatch.setattr("fedmuster.federation.slots._MOST_WAKES", 1000)
    trace = tmp_path / "activity.csv"
    trace.write_text(
        "client,start_seconds,end_seconds,period_seconds\n0,0,3.2e7,3.2e7\n1,3.1e7,3.2e7,3.2e7\n"
    )
    run = tmp_path / "run"
    experiment = cell(
        world=PauseGroups(
            num_clients=2,
            cohort_size=1,
            deadline_seconds=60.0,
            availability=ActivityTrace(path=str(trace)),
        ),
        federation=Federation(concurrency=2, refill=1, buffer=1),
        privacy=Privacy(schedule=Uniform(participations=2)),
        training=None,
    )
    prepare(run, experiment)
    execute(run)
    journal = JournalReader(run)
    assert journal.ending is not None
    assert journal.columns["num_exhausted"][-1] == 1


def test_a_client_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    """Others are there, but have nothing left to spend."""
    experiment = cell(
        world=PauseGroups(
            num_clients=6,
            cohort_size=2,
            deadline_seconds=30.0,
            availability=OnOff(share=0.5, share_sd=0.0, period_seconds=9000.0),
        ),
        federation=Federation(concurrency=2, refill=1, buffer=1),
        privacy=Privacy(schedule=Uniform(participations=3)),
        training=None,
    )
    prepare(tmp_path, experiment)
    execute(tmp_path)
    assert len(debits(tmp_path)) == 3 * 6


def test_unprotected_policies_keep_no_ledger(tmp_path: Path) -> None:
    experiment = cell(unprotected=frozenset({"random"}), rounds=20)
    prepare(tmp_path, experiment)
    execute(tmp_path)
    journal = JournalReader(tmp_path)
    assert not (tmp_path / LEDGER_NAME).exists()
    assert len(journal) == 20
    assert np.isnan(journal.columns["spent_max"]).all()
    assert np.isfinite(journal.columns["train_loss"]).all()


def secure(**changes: Any) -> Experiment:
    privacy = Privacy(epsilon=20.0, schedule=Uniform(participations=40), noise="secure")
    return cell(privacy=privacy, **changes)


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))


def heard_by(simulation: Simulation[Any]) -> dict[int, bool]:
    """Whether each ticket that the policy hears of from now on was completed."""
    heard: dict[int, bool] = {}

    def observe(original: Callable[..., Any], feedback: Feedback) -> Any:
        assert feedback.tickets is not None
        heard.update(zip(feedback.tickets.tolist(), feedback.answered.tolist(), strict=True))
        return original(feedback)

    wrap(simulation.selector, "observe", observe)
    return heard


def test_a_crash_with_secure_noise_leaves_open_jobs_spent(tmp_path: Path) -> None:
    first = secure().simulation(tmp_path, run="one")
    released = log_releases(first)
    play(first, 6)
    checkpoint = first.checkpoint()
    tickets = set(first.selector.tickets.numbers.tolist())
    lost = {(job.decision.number, job.client) for job in first.agenda.jobs}
    assert len(tickets) == len(lost) > 0
    first.step()  # whatever this step asks and sends is gone
    first.close()
    before = debits(tmp_path)

    second = secure().simulation(tmp_path, run="one")
    second.load(checkpoint, source="here")
    heard, sent_before = heard_by(second), {each.key for each in released}
    released = log_releases(second)
    jobs = all_jobs(play(second, 30))
    second.close()
    assert not sent_before & {each.key for each in released}
    assert not any(heard[ticket] for ticket in tickets)
    ended = dict(zip(keys_of(jobs), jobs.answered.tolist(), strict=True))
    assert not any(ended[key] for key in lost)
    assert sum(ended.values()) > 20
    after = debits(tmp_path)
    assert after.items() >= before.items()
    # What was asked after the checkpoint is not asked for again by the same decision.
    unsent = {key for key in before if not ended.get(key, False)}
    assert {key for key, answered in ended.items() if not answered} <= unsent


def test_a_secure_answer_that_waits_at_its_edge_is_not_lost(tmp_path: Path) -> None:
    """The server has it: it needs no second release."""
    experiment = secure(
        world=EdgeNetwork(num_clients=14, num_edges=2),
        federation=Federation(concurrency=6, buffer=3),
    )
    first = experiment.simulation(tmp_path, run="one")
    while not loop_of(first.checkpoint())["kept.waits"].any():
        first.step()
    checkpoint = first.checkpoint()
    loop = loop_of(checkpoint)
    waiting = {
        (
            int(loop[f"decision.{place}.number"]),
            int(loop[f"decision.{place}.selection.clients"][row]),
        )
        for place, row, waits in zip(
            loop["ended.decision"], loop["ended.row"], loop["kept.waits"], strict=True
        )
        if waits
    }
    first.close()
    second = experiment.simulation(tmp_path, run="one")
    second.load(checkpoint, source="here")
    released = log_releases(second)
    jobs = all_jobs(play(second, 12))
    second.close()
    used = dict(zip(keys_of(jobs), jobs.used.tolist(), strict=True))
    assert all(used[key] for key in waiting)
    assert not waiting & {each.key for each in released}


def fedmuster(*arguments: object) -> object:
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
        patch.setattr(sys, "argv", ["fedmuster", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return stop.value.code


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_the_ledger_of_a_killed_run_is_good(tmp_path: Path, noise: Any) -> None:
    run = tmp_path / "run"
    privacy = Privacy(epsilon=40.0, schedule=Uniform(participations=30), noise=noise)
    prepare(run, cell(policies={"pause": PAUSE()}, privacy=privacy, rounds=40))
    for fault in (
        partial(children.die, nth=9),
        partial(children.die_when_asking, nth=8),
        partial(children.die_after_commit, nth=2),
    ):
        assert Child(run, fault).wait().code == -9
        assert not audit(run / LEDGER_NAME, [run]).faults
    assert Child(run).wait().code == 0
    assert fedmuster("ledger", "verify", run / LEDGER_NAME) == 0
    assert fedmuster("ledger", "audit", run / LEDGER_NAME, "--journal", run) == 0
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal, journal:
        row = "(SELECT max(round) FROM jobs)"
        journal.execute(f"UPDATE jobs SET npz = (SELECT npz FROM jobs LIMIT 1) WHERE round = {row}")
    assert not audit(run / LEDGER_NAME, [run]).faults  # a job twice is no second debit
    assert audit(run / LEDGER_NAME, [run], client_name="another-{}").faults
