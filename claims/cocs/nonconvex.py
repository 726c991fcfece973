"""COCS, Fig. 5, 6 and Theorem 4: the square-root utility in the network for CIFAR-10."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play, seeds
from claims.cocs import utility_findings as findings
from claims.cocs.network import (
    CUCB_,
    LINUCB,
    ORACLE,
    OURS,
    RANDOM,
    RegretBound,
    Utilities,
    described,
    five,
)
from claims.cocs.utility_findings import (
    regret_and_participants,
    regrets,
    totals,
    utility_over_rounds,
)
from claims.measures import INTERVALS, number, percent
from claims.published import PUBLISHED_RULES
from fedmuster import COCS, LinUCB, Oracle
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.policies.cocs.hypercubes import ZoomingCubes
from fedmuster.report.statistics import interval, paired
from fedmuster.report.tables import Table
from fedmuster.solvers.assignment import FLGreedy
from fedmuster.worlds import EdgeNetwork

EXACT_ORACLE: Final = "oracle, exact"
EXACT: Final = "cocs, exact"
EXACT_LINUCB: Final = "linucb, exact"
ADAPTIVE: Final = "cocs, one set, zooming, exact"
EPSILON: Final = 0.3
_TIMES_CUCB = 1.7


def greedy() -> FLGreedy:
    """The paper's solver of P3."""
    return FLGreedy(epsilon=EPSILON, utility="square-root")


def _policies() -> dict[str, Policy[Any]]:
    return {
        **five(greedy()),
        EXACT_ORACLE: Oracle(),
        EXACT: COCS(),
        EXACT_LINUCB: LinUCB(),
        ADAPTIVE: COCS(pool="network", cubes=ZoomingCubes()),
    }


def _gather(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    count = 2 if quick else 4
    experiment = Experiment(
        federation=PUBLISHED_RULES,
        policies=_policies(),
        world=EdgeNetwork.cifar(),
        reward=EdgeUtility(utility="square-root"),
        rounds=8 if quick else 1_880,
        seeds=seeds(count),
    )
    utilities = Utilities(comparison=play(experiment, folder / "cifar", run))
    convex = Utilities(
        comparison=play(
            Experiment(
                federation=PUBLISHED_RULES,
                policies={label: five()[label] for label in (ORACLE, OURS)},
                world=EdgeNetwork(),
                rounds=8 if quick else 1_000,
                seeds=seeds(count),
                reward=EdgeUtility(),
                regret=False,
            ),
            folder / "mnist",
            run,
        )
    )
    world, comparison = utilities.world, utilities.comparison
    bound = RegretBound.of(world)
    return Evidence(
        setting=f"the network of Table I for CIFAR-10: {described(world)}; selection alone, "
        f"square-root utility (Eq. 19), solved by FLGreedy with epsilon = {EPSILON:g} but where "
        "it says exact; "
        f"{comparison.rounds:,} rounds, {len(comparison.seeds)} seeds; for the gap in the convex "
        f"case Oracle and COCS in the network for MNIST, {convex.comparison.rounds:,} rounds",
        findings=(
            findings.oracle_highest(utilities),
            findings.outperforms(utilities, "COCS outperforms the other three (significantly)"),
            _times_cucb(utilities),
            _smaller_gap(utilities, convex),
            findings.sublinear(utilities),
            _delta_regret_below_bound(utilities, bound),
            _delta_regret_says_something(utilities),
            _why_smaller(utilities, convex),
        ),
        tables=(totals(utilities), regrets(utilities, bound), _delta_regrets(utilities)),
        figures={
            "utility": utility_over_rounds(utilities),
            "regret": regret_and_participants(utilities, exponent=bound.exponent),
        },
        notes=_notes(utilities),
    )


def _times_cucb(utilities: Utilities) -> Finding:
    times = utilities.times(OURS, CUCB_)
    people = interval(utilities.per_round(OURS) / utilities.per_round(CUCB_))
    return Finding(
        sentence=f"COCS's cumulative utility is {_TIMES_CUCB}x CUCB's (or more)",
        measured=f"{number(times, 3)} times; of participants {number(people, 3)} times",
        holds=times.high >= _TIMES_CUCB,
    )


def _gap(utilities: Utilities) -> FloatArray:
    """[seeds], by which share of Oracle's utility COCS stays behind it."""
    return 1.0 - utilities.shares(OURS)


def _smaller_gap(utilities: Utilities, convex: Utilities) -> Finding:
    here, there = _gap(utilities), _gap(convex)
    return Finding(
        sentence="The difference between Oracle and COCS is smaller than in the convex case "
        "(significantly, as a share of Oracle's utility)",
        measured=f"{percent(interval(here))} against {percent(interval(there))}; in absolute "
        f"terms {_difference(utilities)} against {_difference(convex)}",
        holds=paired(here, there).verdict == "lower",
    )


def _difference(utilities: Utilities) -> str:
    apart = utilities.total(ORACLE) - utilities.total(OURS)
    return f"{apart.mean():,.0f} in {utilities.comparison.rounds:,} rounds"


def _why_smaller(utilities: Utilities, convex: Utilities) -> Finding:
    approximation = 1.0 - utilities.total(ORACLE) / utilities.total(EXACT_ORACLE)
    people = 1.0 - utilities.per_round(OURS) / utilities.per_round(ORACLE)
    there = 1.0 - convex.per_round(OURS) / convex.per_round(ORACLE)
    half = 0.5 * float(_gap(convex).mean() - _gap(utilities).mean())
    return Finding(
        sentence="The reason is, as the paper says, that Oracle is approximated here (tested as: "
        "an exact Oracle has more by at least half of what the gap is smaller)",
        measured=f"FLGreedy costs Oracle {percent(interval(approximation), 2)} of its utility; in "
        f"participants, without the root, the gap is {percent(interval(people))} here and "
        f"{percent(interval(there))} in the convex case",
        holds=half > 0 and interval(approximation).low >= half,
    )


def delta_regret(utilities: Utilities, label: str, share: float) -> FloatArray:
    """[seeds], ``share · sum mu(s_opt) - sum mu(s)`` (Eq. 21), of what really came back."""
    return np.asarray(share * utilities.total(EXACT_ORACLE) - utilities.total(label))


def _delta_regret_below_bound(utilities: Utilities, bound: RegretBound) -> Finding:
    share = greedy().guarantee(utilities.world.num_edges)
    rounds = np.array(float(utilities.comparison.rounds))
    allowed = float(bound(rounds)) * share
    own = delta_regret(utilities, OURS, share)
    return Finding(
        sentence="COCS's delta-regret (21) stays below Theorem 4's bound in every run (Theorem 2's "
        "with 1 / delta)",
        measured=f"{own.mean():,.0f} against {allowed:.2g}",
        holds=bool((own <= allowed).all()),
    )


def _delta_regret_says_something(utilities: Utilities) -> Finding:
    share = greedy().guarantee(utilities.world.num_edges)
    chance = delta_regret(utilities, RANDOM, share)
    other = delta_regret(utilities, EXACT_ORACLE, 1 / share)
    return Finding(
        sentence="Sublinear delta-regret tells COCS from Random",
        measured=f"with 1 / delta = {share:.3f}, FLGreedy's guarantee, Random's is "
        f"{chance.mean():,.0f}; with delta = {share:.3f}, as the paper writes, even the exact "
        f"Oracle's is {other.mean():,.0f}, and linear",
        holds=bool((chance > 0).all()),
        ours=True,
    )


def _delta_regrets(utilities: Utilities) -> Table:
    share = greedy().guarantee(utilities.world.num_edges)
    return Table(
        title="delta-regret (21) after all rounds",
        columns=(
            "policy",
            f"1 / delta = {share:.3f} (Lemma 3)",
            f"1 / delta = {1 / share:.1f} (as printed)",
            "1 / delta = 1 (realised regret)",
        ),
        rows=tuple(
            (
                label,
                *(
                    number(interval(delta_regret(utilities, label, factor)), 0)
                    for factor in (share, 1 / share, 1.0)
                ),
            )
            for label in utilities.comparison.labels
        ),
        footnotes=(INTERVALS, "Of realised utilities, as (21) has it; s_opt by an exact Oracle."),
    )


def _notes(utilities: Utilities) -> tuple[str, ...]:
    known = {
        label: utilities.times(exact, label)
        for label, exact in ((ORACLE, EXACT_ORACLE), (OURS, EXACT), (LINUCB, EXACT_LINUCB))
    }
    return (
        "(19) is the square root of P2's objective: what maximises one maximises the other. So an "
        "exact solver of P2 serves here too; with it "
        + ", ".join(f"{label} has {number(times, 3)} times" for label, times in known.items())
        + " the utility. See cocs-solvers.",
        "LinUCB solves P3 by FLGreedy, too, so that knowledge alone makes the difference. This was "
        "decided after a trial (two of the seeds, 20 rounds) in which it was exact and ahead of "
        f"Oracle: with an exact solver it has {percent(utilities.share(EXACT_LINUCB))} of the "
        "utility of Oracle with FLGreedy.",
        f"COCS with one set of cubes for all pairs, which open where much is known, has "
        f"{percent(interval(utilities.total(ADAPTIVE) / utilities.total(EXACT_ORACLE)))} of the "
        "exact Oracle's.",
        "Seeds differ in what clients cost: utilities are tested as shares of Oracle's, seed by "
        "seed, with Bonferroni's correction within each sentence.",
        "The paper defines a delta-approximation by mu(s) >= mu(s_opt) / delta, and then sets delta"
        " = 1 / ((1 + eps) (2 + 2 M)), which is below 1. Read either way, delta-regret does not "
        "compare policies here: it is far below 0 for all of them, or linear for all of them.",
        "Theorem 4 prints K(t) = t^0.8 ln t, the exponent of the regret, in place of t^0.4 ln t; "
        "with it exploration alone would be linear (Lemma 1). COCS has t^0.4 ln t here.",
        "Regret is between utilities of expected participants. The expectation of a root is less "
        "than the root of an expectation, by something that depends on the variance; P3 as the "
        "paper solves it, with probabilities in place of outcomes, neglects that too.",
    )


CLAIM = Claim(
    name="cocs-nonconvex",
    source="COCS, Fig. 5–6, Theorem 4",
    statement="With the square-root utility Oracle is the best and COCS outperforms the other "
    "three, with 1.7x CUCB's utility; the difference to Oracle is smaller than in the convex case, "
    "and regret is sublinear.",
    gather=_gather,
)
