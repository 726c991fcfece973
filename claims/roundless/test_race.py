"""When a level counts as reached, what it costs, how learning rates are chosen, and the luck."""

from pathlib import Path

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.claim import seeds_from
from claims.measures import swing
from claims.racing.contestant import CONCURRENCY
from claims.racing.milestones import costs_to, end_level, rows_to, seconds_to, smoothed
from claims.racing.tuning import Trial, best_rate
from claims.roundless.contestants import CONTESTANTS, FEDBUFF_3, FEDBUFF_10, PISCES
from claims.roundless.race import BASE_RATE, BASELINE, GRID, Plan, race
from claims.roundless.settings import GROUPS, SETTINGS
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import execute
from fedmuster.experiments.sweep import Cells
from fedmuster.report.runs import Run

NAN = np.nan
SECONDS = 100.0


def climbing(*accuracies: float, step: float = 1.0) -> Run:
    """A run of two clients a row, of which one answers and none is aggregated in the first row."""
    rows = len(accuracies)
    aggregated = np.ones(rows)
    aggregated[0] = 0.0
    columns = {
        "seconds": np.full(rows, step),
        "accuracy": np.array(accuracies),
        "num_completed": np.ones(rows),
        "num_aggregated": aggregated,
    }
    return run_by_hand("x", 0, [(0, 1)] * rows, columns, num_parameters=250_000)


def test_a_level_is_reached_by_the_mean_of_three_per_cent_of_the_time() -> None:
    lucky = climbing(0.1, 0.9, 0.1, 0.1, 0.6, 0.6, 0.6)
    assert smoothed(lucky, seconds=SECONDS)[1] == pytest.approx(
        [0.1, 0.5, 1.1 / 3, 1.1 / 3, 0.8 / 3, 1.3 / 3, 0.6]
    )
    assert rows_to(lucky, 0.6, seconds=SECONDS) == 7
    assert seconds_to(lucky, 0.6, seconds=SECONDS) == 7.0
    assert rows_to(lucky, 0.61, seconds=SECONDS) is None
    assert seconds_to(lucky, 0.61, seconds=SECONDS) == np.inf


def test_a_row_without_an_evaluation_counts_in_time_alone() -> None:
    sparse = climbing(NAN, 0.5, NAN, 0.8, step=2.0)
    assert rows_to(sparse, 0.8, seconds=SECONDS) == 4
    assert seconds_to(sparse, 0.5, seconds=SECONDS) == 4.0


def test_costs_are_those_until_the_level() -> None:
    costs = costs_to(climbing(0.1, 0.2, 0.3, 0.4), 0.2, seconds=10.0)
    assert (costs.client_updates, costs.server_updates, costs.wasted) == (4.0, 2.0, 3.0)
    assert (costs.megabytes_down, costs.megabytes_up) == (4.0, 2.0)
    whole = costs_to(climbing(0.1, 0.2, 0.3, 0.4), 0.9, seconds=10.0)
    assert (whole.client_updates, whole.server_updates, whole.wasted) == (8.0, 4.0, 5.0)


def test_the_end_is_the_last_tenth() -> None:
    run = climbing(*[0.1] * 18, 0.4, 0.6)
    assert end_level(run) == pytest.approx((0.1 + 0.4 + 0.6) / 3)
    assert swing(run, "accuracy") == pytest.approx(np.std([0.1, 0.4, 0.6]))


def test_the_soonest_rate_is_chosen_then_the_highest_end() -> None:
    def trial(seconds: list[float], end: float) -> Trial:
        return Trial(np.array(seconds), np.array([end, end]))

    assert best_rate({0.1: trial([9.0, 9.0], 0.9), 0.2: trial([5.0, 6.0], 0.5)}) == 0.2
    assert best_rate({0.1: trial([5.0, 6.0], 0.9), 0.2: trial([5.0, 6.0], 0.5)}) == 0.1
    assert best_rate({0.1: trial([1.0, np.inf], 0.9), 0.2: trial([50.0, 60.0], 0.5)}) == 0.2
    assert best_rate({0.1: trial([1.0, np.inf], 0.5), 0.2: trial([np.inf, 60.0], 0.9)}) == 0.2


def test_no_seed_is_for_tuning_and_for_judging() -> None:
    plan = Plan()
    assert plan.grid == GRID
    assert BASE_RATE in GRID
    with seeds_from(7):
        assert plan.judging_seeds == (7, 8, 9, 10, 11)
        assert plan.tuning_seeds == (12, 13)


def test_everybody_has_as_many_clients_at_work() -> None:
    for setting in SETTINGS:
        for contestant in CONTESTANTS:
            experiment = setting.experiment([contestant], rate=0.1, seeds=(0,))
            federation = experiment.federation_of(contestant.label)
            assert federation is not None
            assert federation.concurrency == CONCURRENCY
            problem = setting.world.start(0).problem
            assert problem.cohort_size == CONCURRENCY
            settled = federation.settled(contestant.policy, problem)
            assert settled.in_rounds == contestant.label.endswith("rounds")


def run_all(cells: Cells) -> None:
    for cell in cells:
        execute(cell)


def test_a_race_tunes_on_other_seeds_and_pairs_luck(tmp_path: Path) -> None:
    setting = GROUPS.quick()
    result = race(setting, Plan(grid=(BASE_RATE, 0.4), judging=2, tuning=1), tmp_path, run_all)
    assert list(result.rates) == [contestant.label for contestant in CONTESTANTS]
    for label, rate in result.rates.items():
        assert result.trials[label][rate].seconds.mean() == min(
            trial.seconds.mean() for trial in result.trials[label].values()
        )
        assert [run.seed for run in result.runs[label]] == [0, 1]
    assert all(len(trial.seconds) == 1 for own in result.trials.values() for trial in own.values())
    assert sorted(path.name for path in (tmp_path / "tuning").glob("*/*/seed-*"))[-1] == "seed-2"
    np.testing.assert_array_equal(result.levels, result.ends(BASELINE))
    np.testing.assert_array_equal(result.shares(BASELINE, BASELINE), [1.0, 1.0])
    # The n-th job of a client takes equally long with both buffers: they have the same luck.
    first = first_jobs(tmp_path, FEDBUFF_10)
    second = first_jobs(tmp_path, FEDBUFF_3)
    both = first.keys() & second.keys()
    assert len(both) > 10
    assert [first[client] for client in both] == pytest.approx([second[client] for client in both])


def first_jobs(folder: Path, label: str) -> dict[int, float]:
    """How long the first job of each client took that had one, with seed 0."""
    (cell,) = (folder / "judging").glob(f"*/{label}/seed-0")
    taken: dict[int, float] = {}
    jobs = JournalReader(cell).jobs
    assert jobs is not None
    seconds = [rows.ended_at_seconds - rows.asked_at_seconds for rows in jobs]
    asked = np.concatenate([rows.asked_at_seconds for rows in jobs])
    clients, lasted = np.concatenate([rows.client for rows in jobs]), np.concatenate(seconds)
    for place in np.argsort(asked, kind="stable").tolist():
        taken.setdefault(int(clients[place]), float(lasted[place]))
    return taken


def test_evaluations_are_about_ten_answers_apart() -> None:
    for contestant in CONTESTANTS:
        if contestant.label != PISCES:  # aggregates by the clock
            answers = contestant.federation.buffer or CONCURRENCY
            assert 9 <= answers * contestant.evaluate_every <= 10
