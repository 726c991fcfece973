"""The journal of runs with edge servers: what it keeps, that kill -9 changes nothing of it, and
that anybody can compute from it what COCS has learned."""

import time
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.tampering import changing
from tests.forks import FORKS

from fedmuster import Random
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core import state as states
from fedmuster.core.policy import Policy
from fedmuster.core.selector import Selector
from fedmuster.experiments.journal import Journal, JournalReader, rounds_done
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import EdgeRow, Simulation
from fedmuster.policies.cocs.policy import COCS
from fedmuster.worlds import BSFLRates, EdgeNetwork

NETWORK = EdgeNetwork(num_clients=8, num_edges=2, cohort_size=8, budget=6.0)


def cell(
    rounds: int, policy: Policy[Any] | None = None, *, regret: bool | None = False, **more: Any
) -> Experiment:
    return Experiment(
        policies={"it": Random() if policy is None else policy},
        world=replace(NETWORK, **more),
        rounds=rounds,
        seeds=(3,),
        regret=regret,
    )


def finished(folder: Path, experiment: Experiment) -> JournalReader:
    prepare(folder, experiment)
    execute(folder)
    return JournalReader(folder)


def image(row: EdgeRow | None) -> list[tuple[str, tuple[int, ...], bytes] | None]:
    assert row is not None
    columns = [getattr(row, item.name) for item in fields(row)]
    return [None if c is None else (c.dtype.str, c.shape, c.tobytes()) for c in columns]


@pytest.mark.parametrize("at_least", [0, 1])
def test_the_journal_holds_every_bit_of_what_happened_at_the_edges(
    tmp_path: Path, at_least: int
) -> None:
    experiment = cell(25, regret=None, at_least=at_least)
    journal = finished(tmp_path, experiment)
    simulation = Simulation(Random(), experiment.world, seed=3, genie=EdgeUtility())
    rows = [simulation.step() for _ in range(25)]
    assert journal.edge_rows is not None
    for kept, row in zip(journal.edge_rows, rows, strict=True):
        assert image(kept) == image(row.network)
    assert journal.columns["reward"].tolist() == [row.reward for row in rows]
    assert journal.columns["regret"].tolist() == [row.regret for row in rows]
    for cohort, row in zip(journal.cohorts, rows, strict=True):
        np.testing.assert_array_equal(cohort, row.clients)


def test_the_journal_knows_the_network(tmp_path: Path) -> None:
    journal = finished(tmp_path, cell(3))
    assert int(journal.clients["num_edges"]) == 2
    assert journal.clients["edge_position_km"].shape == (2, 2)
    assert journal.clients["position_km"].shape == (8, 2)
    assert journal.clients["edge_radius_km"].shape == ()
    assert journal.edge_rows is not None
    assert journal.edge_rows[0].position_km is not None
    first = journal.clients["position_km"][journal.cohorts[0]]
    np.testing.assert_array_equal(journal.edge_rows[0].position_km, first)


def test_a_flat_run_has_no_edges(tmp_path: Path) -> None:
    flat = Experiment(policies={"it": Random()}, world=BSFLRates(), rounds=3)
    journal = finished(tmp_path, flat)
    assert journal.edge_rows is None
    assert int(journal.clients["num_edges"]) == 0


def test_the_utility_is_that_of_the_spec(tmp_path: Path) -> None:
    root = replace(cell(8, regret=None), reward=EdgeUtility(utility="square-root"))
    journal = finished(tmp_path, root)
    assert Experiment.load(tmp_path / SPEC_NAME).reward == root.reward
    assert journal.edge_rows is not None
    participants = np.array([np.count_nonzero(row.in_time) for row in journal.edge_rows])
    np.testing.assert_array_equal(journal.columns["reward"], np.sqrt(participants / 2))


def test_two_runs_are_told_apart_by_a_single_edge(tmp_path: Path) -> None:
    """Another edge, another bit of a cost, another outcome: another digest."""
    journal = finished(tmp_path, cell(10))
    before = journal.digest()
    assert JournalReader(tmp_path).digest() == before
    assert journal.edge_rows is not None
    number = next(t for t, row in enumerate(journal.edge_rows, start=1) if len(row.edges) > 0)
    row = journal.edge_rows[number - 1]
    columns = {item.name: getattr(row, item.name) for item in fields(row)}
    for changed in (
        {"edges": 1 - row.edges},
        {"in_time": ~row.in_time},
        {"cost": np.nextafter(row.cost, 9.0)},
        {"budget": row.budget + 1.0},
        {"context": row.context / 2},
    ):
        with changing(tmp_path) as database:
            bent = states.to_bytes({**columns, **changed}, {})
            database.execute("UPDATE network SET npz = ? WHERE round = ?", (bent, number))
        assert JournalReader(tmp_path).digest() != before, changed
    with changing(tmp_path) as database:
        whole = states.to_bytes(columns, {})
        database.execute("UPDATE network SET npz = ? WHERE round = ?", (whole, number))
    assert JournalReader(tmp_path).digest() == before


@pytest.mark.parametrize("policy", [Random(), COCS()], ids=lambda policy: policy.name)
def test_a_run_that_was_killed_goes_on_as_if_nothing_had_been(
    tmp_path: Path, policy: Policy[Any]
) -> None:
    killed, left_in_peace = tmp_path / "killed", tmp_path / "left in peace"
    for folder in (killed, left_in_peace):
        folder.mkdir()
    prepare(killed, cell(1_000_000, policy))
    process = FORKS.Process(target=execute, args=(killed,))
    process.start()
    while rounds_done(killed) == 0:
        assert process.is_alive()
        time.sleep(0.02)
    process.kill()
    process.join()
    done = rounds_done(killed)
    rows = JournalReader(killed).edge_rows
    assert rows is not None
    assert len(rows) == done  # whole commits only
    resumed = finished(killed, cell(done + 40, policy))
    undisturbed = finished(left_in_peace, cell(done + 40, policy))
    assert len(resumed.versions) == 2
    assert resumed.digest() == undisturbed.digest()


def test_anybody_can_compute_from_the_journal_what_cocs_has_learned(tmp_path: Path) -> None:
    """Algorithm 1, lines 14 to 19: counts and shares of each client, edge and cube of contexts."""
    journal = finished(tmp_path, cell(80, COCS(), at_least=1))
    chosen: dict[tuple[int, int, int], int] = defaultdict(int)
    in_time: dict[tuple[int, int, int], int] = defaultdict(int)
    assert journal.edge_rows is not None
    for cohort, row in zip(journal.cohorts, journal.edge_rows, strict=True):
        for client, edge, context, success in zip(
            cohort.tolist(), row.edges.tolist(), row.context.tolist(), row.in_time, strict=True
        ):
            step = [min(int(5 * x), 4) for x in context]
            cube = (client, edge, 5 * step[0] + step[1])
            chosen[cube] += 1
            in_time[cube] += bool(success)
    with Journal(tmp_path) as opened:
        checkpoint = opened.checkpoint()
    assert checkpoint is not None
    learned: Any = Selector.from_bytes(checkpoint.selector, COCS(), source="journal").state
    assert learned.count.shape == (8, 2, 25)
    count, successes = np.zeros((8, 2, 25)), np.zeros((8, 2, 25))
    for cube, times in chosen.items():
        count[cube], successes[cube] = times, in_time[cube]
    np.testing.assert_array_equal(learned.count, count)
    np.testing.assert_array_equal(learned.successes, successes)
    assert 0 < successes.sum() < count.sum()  # some were late
    assert count.sum() == sum(len(cohort) for cohort in journal.cohorts) > 100
