"""What PAUSE's training claims measure, on runs written by hand."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.pause import private_findings as findings
from claims.pause.private_findings import NO_PRIVACY
from claims.pause.private_training import LARGE_R2, SMALL_NON_IID, SMALL_R1, SMALL_R2
from fedmuster.privacy.mechanisms import Laplace
from fedmuster.report.runs import Comparison, Run
from fedmuster.training.networks import PAUSECNN3

NAN = np.nan
PRIVATE = ("pause", "sa-pause", "random", "clustered", "fastest", "fedavg")


def run(
    label: str,
    seed: int = 0,
    *,
    seconds: Sequence[float] = (1.0, 1.0, 2.0),
    spent: Sequence[float] = (1.0, 2.0, 3.0),
    accuracy: Sequence[float] = (NAN, 0.5, 0.6),
) -> Run:
    columns = {"seconds": seconds, "spent_max": spent, "accuracy": accuracy}
    return run_by_hand(label, seed, [[0]] * len(seconds), columns, num_parameters=1_000)


def comparison(runs: Mapping[str, tuple[Run, ...]]) -> Comparison:
    """As of the small network, but of these runs."""
    seeds = tuple(range(len(runs["pause"])))
    return Comparison(
        runs=runs,
        seeds=seeds,
        rounds=min(one.rounds for own in runs.values() for one in own),
        cohort_size=1,
        notes=(),
        experiment=SMALL_R1.experiment(),
    )


def alike(**special: tuple[Run, ...]) -> Comparison:
    """Three seeds of every policy, those in ``special`` as given."""
    runs = {label: tuple(run(label, seed) for seed in range(3)) for label in PRIVATE}
    return comparison(
        {
            **runs,
            **{label.replace("_", "-"): own for label, own in special.items()},
            NO_PRIVACY: tuple(run(NO_PRIVACY, seed, spent=(NAN,) * 3) for seed in range(3)),
        }
    )


def test_leakage_over_epochs_is_that_of_the_epochs_that_all_have() -> None:
    short = tuple(run("random", s, seconds=(1.0, 1.0), spent=(1.0, 2.0)) for s in range(3))
    leaked = findings.leaked_by_round(alike(random=short))
    assert leaked["pause"] == pytest.approx([1.5] * 3)
    assert "fedavg" not in leaked
    assert NO_PRIVACY not in leaked


def test_the_long_rounds_of_fedavg_cut_nobody_short() -> None:
    slow = tuple(run("fedavg", s, seconds=(9.0,), spent=(1.0,), accuracy=(0.1,)) for s in range(3))
    assert findings.leaked_by_round(alike(fedavg=slow))["pause"] == pytest.approx([2.0] * 3)


def test_leakage_over_time_counts_until_the_end_of_the_time() -> None:
    """1 from second 1 to 2, 2 to second 4, and 3 for the other 56 of the 60 seconds."""
    leaked = findings.leaked_by_time(alike())
    assert leaked["pause"] == pytest.approx([(1 * 1 + 2 * 2 + 3 * 56) / 60] * 3)


def test_leaking_less_must_be_significant() -> None:
    less = tuple(run("pause", s, spent=(0.5, 0.5, 0.5 + s / 100)) for s in range(3))
    found = findings.leaks_less(alike(pause=less), "epochs")
    assert found.holds
    assert "lower than random, clustered, fastest" in found.measured
    doubtful = tuple(run("pause", s, spent=(0.5, 0.5, 0.5 + 3 * s)) for s in range(3))
    assert not findings.leaks_less(alike(pause=doubtful), "epochs").holds


def test_fedavg_and_fastest_coincide_or_do_not() -> None:
    assert findings.coincide(alike()).holds
    other = tuple(run("fastest", s, spent=(1.0, 2.0, 3.1)) for s in range(3))
    assert not findings.coincide(alike(fastest=other)).holds


def test_one_run_above_the_cap_is_found() -> None:
    assert findings.below_the_cap(alike()).holds
    high = (run("random", 0), run("random", 1, spent=(1.0, 2.0, 40.1)), run("random", 2))
    assert not findings.below_the_cap(alike(random=high)).holds


def test_an_approximation_may_be_a_little_worse() -> None:
    assert findings.approximated(alike()).holds
    slow = tuple(run("sa-pause", s, seconds=(1.0, 1.0, 2.6)) for s in range(3))
    assert not findings.approximated(alike(sa_pause=slow)).holds
    worse = tuple(run("sa-pause", s, accuracy=(NAN, 0.5, 0.58)) for s in range(3))
    assert not findings.approximated(alike(sa_pause=worse)).holds
    leaky = tuple(run("sa-pause", s, spent=(1.0, 2.0, 3.5)) for s in range(3))
    assert not findings.approximated(alike(sa_pause=leaky)).holds


def test_ending_higher_counts_rivals_with_privacy_only() -> None:
    high = tuple(run("pause", s, accuracy=(NAN, 0.5, 0.8 + s / 1000)) for s in range(3))
    assert findings.ends_higher(alike(pause=high)).holds
    assert not findings.ends_higher(alike()).holds
    assert findings.nears_no_privacy(alike(pause=high)).holds


def test_the_whole_update_gets_d_times_the_epsilon() -> None:
    found = findings.whole_update(alike())
    assert not found.holds
    assert "ε = 40,000" in found.measured


def test_clusters_are_compared_with_their_absence() -> None:
    plain = comparison({"pause": tuple(run("pause", s) for s in range(3))})
    leaky = tuple(run("pause", s, spent=(1.0, 2.0, 3.3)) for s in range(3))
    leakage, convergence = findings.clusters_cost(alike(pause=leaky), plain)
    assert leakage.measured == "+5.00%"
    assert leakage.holds
    assert not convergence.holds


def test_the_settings_are_those_of_the_paper() -> None:
    """Section V, and where it is silent the authors' scripts."""
    assert SMALL_R1.mechanism == Laplace(mode="per-coordinate", clip=0.006)
    assert SMALL_R1.network.world.num_clusters is None
    assert (SMALL_R2.network.world.num_clusters, LARGE_R2.network.world.num_clusters) == (6, 20)
    repeats = [task.network.policy.alpha * task.network.policy.rho for task in (SMALL_R2, LARGE_R2)]
    assert repeats == pytest.approx([0.05, 0.01])
    assert "random" in SMALL_R1.policies()
    assert "random" not in SMALL_NON_IID.policies()
    assert SMALL_R1.experiment().unprotected == {NO_PRIVACY}
    assert SMALL_R1.pause_alone().unprotected == frozenset()


def test_full_claims_have_the_papers_networks() -> None:
    from claims import CLAIMS

    heavy = [name for name, claim in CLAIMS.items() if claim.heavy and name.startswith("pause")]
    assert len(heavy) == 6
    assert all(CLAIMS[name.removesuffix("-full")].source.endswith("reduced") for name in heavy)
    assert not PAUSECNN3(batch_norm=False).batch_norm
