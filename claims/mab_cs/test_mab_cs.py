"""What MAB-CS's claims measure: against brute force, and on runs and times written by hand."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.mab_cs import accuracy as mab_cs_accuracy
from claims.mab_cs import elapsed_findings as findings
from claims.mab_cs import lte_cell as references
from claims.mab_cs import scores as mab_cs_scores
from claims.mab_cs.elapsed import differences
from claims.mab_cs.lte_cell import ELEMENT_WISE, EXTENDED, FEDCS, NAIVE, RIVALS, cell
from claims.measures import settled_accuracy
from fedmuster import ElementWiseMABCS, ExtendedFedCS, FedCS, NaiveMABCS
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.core.streams import stream
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Simulation
from fedmuster.report.edge_rows import Scores
from fedmuster.report.runs import Comparison, Run
from fedmuster.solvers.schedule import finish_seconds
from fedmuster.worlds import LTECell

NAN = np.nan
SMALL = LTECell(num_clients=20, cohort_size=3, eta=1.9)
FRACTION = 0.3


def test_the_whole_setting_is_heavy_and_the_papers() -> None:
    reduced, whole = mab_cs_accuracy.TRAINING
    assert (reduced.name, reduced.heavy) == ("mab-cs-accuracy", False)
    assert (whole.name, whole.heavy) == ("mab-cs-accuracy-full", True)


# What rounds could have taken


def test_no_order_is_shorter_than_whoever_is_ready_first() -> None:
    rng = stream(0, "test")
    for _ in range(50):
        update, upload = rng.exponential(5.0, 4), rng.exponential(2.0, 4)
        orders = [list(order) for order in permutations(range(4))]
        shortest = min(finish_seconds(update[order], upload[order])[-1] for order in orders)
        assert references.ready_first(update, upload) == pytest.approx(shortest)


def test_policies_choose_among_the_replayed_candidates_and_take_the_replayed_times() -> None:
    rounds = references.replay(SMALL, seed=4, rounds=25, request_fraction=FRACTION)
    assert rounds.asked.shape == (25, 6)
    best = references.clairvoyant(rounds)
    policies: tuple[Policy[Any], ...] = (
        FedCS(request_fraction=FRACTION),
        ExtendedFedCS(request_fraction=FRACTION),
        NaiveMABCS(request_fraction=FRACTION),
        ElementWiseMABCS(request_fraction=FRACTION),
    )
    for policy in policies:
        simulation = Simulation(policy, SMALL, seed=4)
        rows = [simulation.step() for _ in range(25)]
        chosen = np.stack([row.clients for row in rows])
        seconds = np.array([row.seconds for row in rows])
        assert all(np.isin(*pair).all() for pair in zip(chosen, rounds.asked, strict=True))
        at_best = references.ready_first(*rounds.of(chosen))
        assert (best <= at_best + 1e-9).all()
        assert (at_best <= seconds + 1e-9).all()
        assert at_best.sum() > 0.5 * seconds.sum()  # of the same clients, and not of others
    assert (best <= references.knowing_means(rounds) + 1e-9).all()
    assert (best <= references.zero_filled(rounds) + 1e-9).all()


def by_hand(upload: Sequence[float], rounds: int) -> references.Rounds:
    """One client of those with these uploads each round, who need no time to compute."""
    uploads = np.tile(np.array(upload), (rounds, 1))
    asked = np.tile(np.arange(len(upload)), (rounds, 1))
    return references.Rounds(
        seed=0, size=1, update=np.zeros_like(uploads), upload=uploads, asked=asked
    )


def test_who_knows_the_means_takes_the_shorter_on_average() -> None:
    rounds = by_hand((1.0, 1.5), 4)
    rounds.upload[-1] = (4.0, 1.0)  # so that the second is shorter on average
    assert references.knowing_means(rounds) == pytest.approx([3.0, 3.0, 3.0, 2.0])
    assert references.clairvoyant(rounds) == pytest.approx([2.0, 2.0, 2.0, 2.0])


def test_averages_that_begin_with_zeros_need_more_tries() -> None:
    """T_inc is 2 and 3 s: the longer one is tried until 3 n / 5 > 2, that is four times."""
    rounds = by_hand((1.0, 1.5), 40)
    assert np.count_nonzero(references.zero_filled(rounds) == 3.0) == 4
    assert np.count_nonzero(references.zero_filled(rounds, window=1) == 3.0) == 1


# What the paper says of elapsed times


def times(**total: Sequence[float]) -> findings.ElapsedTimes:
    """Of three seeds, in which FedCS took 100 s if nothing else is said."""
    by_label: dict[str, FloatArray] = {FEDCS: np.full(3, 100.0)}
    names = {"extended": EXTENDED, "naive": NAIVE, "element_wise": ELEMENT_WISE}
    names |= {"no_bonus": findings.NO_BONUS, "means": findings.KNOWING_MEANS}
    names |= {"clairvoyant": findings.CLAIRVOYANT}
    for name, values in total.items():
        by_label[names[name]] = np.array(values)
    runs = {label: tuple(run(label, seed) for seed in range(3)) for label in by_label}
    return findings.ElapsedTimes(comparison=comparison(runs), total=by_label)


def run(
    label: str,
    seed: int = 0,
    *,
    seconds: Sequence[float] = (1.0, 1.0, 2.0),
    accuracy: Sequence[float] = (NAN, NAN, NAN),
    scores: Scores | None = None,
) -> Run:
    columns = {"seconds": seconds, "accuracy": accuracy}
    return run_by_hand(label, seed, [[0]] * len(seconds), columns, scores=scores)


def comparison(runs: Mapping[str, tuple[Run, ...]]) -> Comparison:
    own = next(iter(runs.values()))
    return Comparison(
        runs=runs,
        seeds=tuple(range(len(own))),
        rounds=own[0].rounds,
        cohort_size=1,
        notes=(),
        experiment=Experiment(policies={"fedcs": FedCS()}, world=cell(None), rounds=3),
    )


def test_all_three_must_be_longer() -> None:
    longer = times(extended=(110, 112, 111), naive=(130, 131, 133), element_wise=(105, 106, 104))
    assert findings.all_longer(longer).holds
    assert findings.naive_longest(longer).holds
    equal = times(extended=(100, 100, 100), naive=(130, 131, 133), element_wise=(105, 106, 104))
    found = findings.all_longer(equal)
    assert not found.holds
    assert f"{EXTENDED} 0.00 ± 0.00 % (equal)" in found.measured
    assert findings.naive_longest(equal).holds
    alike = times(extended=(110, 140, 111), naive=(130, 131, 133), element_wise=(105, 106, 104))
    assert not findings.naive_longest(alike).holds


def test_shorter_and_best() -> None:
    short = times(extended=(90, 91, 92), naive=(93, 95, 94), element_wise=(80, 81, 83))
    assert findings.all_shorter(short).holds
    assert findings.bandits_shorter(short).holds
    assert findings.element_wise_best(short).holds
    unsure = times(extended=(80, 99, 130), naive=(93, 95, 94), element_wise=(80, 81, 83))
    assert not findings.all_shorter(unsure).holds
    assert findings.bandits_shorter(unsure).holds
    assert not findings.element_wise_best(unsure).holds


def test_exploration_pays_where_it_shortens_the_widest() -> None:
    still = times(element_wise=(101, 102, 101), no_bonus=(100, 100, 100))
    pays = times(element_wise=(80, 81, 82), no_bonus=(90, 91, 93))
    assert findings.exploration_pays(still, pays).holds
    assert not findings.exploration_pays(still, still).holds


def test_near_who_knows_the_means() -> None:
    near = times(element_wise=(80, 81, 82), means=(79, 80, 81), clairvoyant=(50, 51, 52))
    assert findings.near_the_means(near).holds
    far = times(element_wise=(80, 81, 82), means=(60, 61, 62), clairvoyant=(50, 51, 52))
    assert not findings.near_the_means(far).holds


def test_differences_add_up_over_rounds() -> None:
    runs = {label: (run(label), run(label, 1)) for label in (FEDCS, *RIVALS)}
    runs[NAIVE] = (run(NAIVE, seconds=(2.0, 3.0, 1.0)), run(NAIVE, 1, seconds=(2.0, 1.0, 1.0)))
    by_label = {curve.label: curve for curve in differences(comparison(runs))}
    assert by_label[NAIVE].mean.tolist() == [-1.0, -2.0, -1.0]  # Eq. 12
    assert by_label[EXTENDED].mean.tolist() == [0.0, 0.0, 0.0]


# Accuracy


def accuracies(**ends: Sequence[float]) -> Comparison:
    """Ten rounds of each, all evaluated, which end with these accuracies in the last two."""
    runs = {
        label: tuple(
            run(label, seed, seconds=[1.0] * 10, accuracy=[*[0.1] * 8, end - 0.01, end + 0.01])
            for seed, end in enumerate(values)
        )
        for label, values in ends.items()
    }
    return comparison(runs)


def test_what_a_run_settles_at() -> None:
    (own,) = accuracies(one=(0.6,)).runs["one"]
    assert settled_accuracy(own) == pytest.approx(0.6)


def test_similar_needs_evidence() -> None:
    close = accuracies(one=(0.60, 0.61, 0.62), two=(0.601, 0.612, 0.619))
    assert mab_cs_accuracy.similar(close).holds
    apart = accuracies(one=(0.60, 0.61, 0.62), two=(0.625, 0.636, 0.644))
    assert not mab_cs_accuracy.similar(apart).holds
    noisy = accuracies(one=(0.60, 0.61, 0.62), two=(0.55, 0.61, 0.67))
    assert not mab_cs_accuracy.similar(noisy).holds


# Scores


def scores(*lines: Sequence[float]) -> Scores:
    """One line a client, over eight rounds."""
    values = np.array(lines, dtype=np.float64).T
    return Scores(
        rounds=np.arange(1, 1 + len(values)),
        clients=np.arange(values.shape[1]),
        values={"score": values},
    )


def test_movement_in_a_quarter() -> None:
    own = scores([NAN, 5, 5, 3, 2, 2, 1, 1.5], [0, 0, NAN, 0, 7, 7, 7, 7])
    assert mab_cs_scores.movement(own, 0.75, 1.0).tolist() == [0.5, 0.0]
    second = mab_cs_scores.movement(own, 0.25, 0.5)
    assert second[0] == 2.0
    assert np.isnan(second[1])
    assert mab_cs_scores.between_clients(own) == pytest.approx(2.75)  # half of 1.5 … 7


def test_whose_score_is_highest() -> None:
    flat = [0.0] * 7
    one = scores([*flat, 3.0], [*flat, 2.0], [*flat, 1.0])
    swapped = scores([*flat, 2.0], [*flat, 3.0], [*flat, 1.0])
    own = comparison(
        {
            NAIVE: (run(NAIVE, scores=one), run(NAIVE, 1, scores=one)),
            ELEMENT_WISE: (run(ELEMENT_WISE, scores=one), run(ELEMENT_WISE, 1, scores=swapped)),
        }
    )
    assert mab_cs_scores.best_differs(own, np.arange(3)) == 1
    assert mab_cs_scores.best_differs(own, np.array([0, 2])) == 0
    assert mab_cs_scores.agreement_of_ranks(own) == pytest.approx([1.0, 0.5])
