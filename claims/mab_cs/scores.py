"""MAB-CS, Fig. 4: whether the scores of clients converge, and whose are highest."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play
from claims.claim import seeds as first_seeds
from claims.mab_cs.lte_cell import ELEMENT_WISE, NAIVE, SETTING, cell, element_wise, naive
from claims.measures import in_percent, number, percent
from claims.published import PUBLISHED_RULES
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Watch
from fedmuster.report.edge_rows import Scores
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import interval, paired
from fedmuster.report.tables import Table

_ETA = 1.5
_SCORE = "score"
_SHOWN = Watch(clients=10)
"""The paper shows 10 clients out of 100."""
_EVERY = 5
_LONGER = 8
_CALM = 0.1
"""Converged: a score moves by less than a tenth of what the middle half of clients differ by."""
_BANDITS = (NAIVE, ELEMENT_WISE)


def _gather(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    from fedmuster.report import figures

    rounds = 40 if quick else 500
    both: dict[str, Policy[Any]] = {NAIVE: naive(), ELEMENT_WISE: element_wise()}
    seeds = 2 if quick else 20
    comparison = play(_experiment(both, rounds, seeds=seeds), folder, run)
    slowly = _experiment({NAIVE: naive()}, _LONGER * rounds, seeds=seeds)
    longer = play(slowly, folder / "longer", run)
    return Evidence(
        setting=f"{SETTING}; eta = {_ETA}, selection alone, {comparison.rounds:,} rounds, "
        f"{len(comparison.seeds)} seeds, the scores of all clients written down every "
        f"{_EVERY} rounds",
        findings=(
            *(_converges(comparison, label) for label in _BANDITS),
            _different_first(comparison),
            _converges_slowly(longer),
        ),
        tables=(_table(comparison),),
        figures={"scores": figures.score_convergence(_ten_clients(comparison))},
        notes=(
            "The movement of a score in a quarter of the rounds is its highest less its lowest "
            "value there. It is compared with the interquartile range of the clients' scores at "
            "the end. Of Element-wise MAB-CS, whose score depends on who has been chosen already, "
            "it is that of the first choice.",
            "By Eq. 4–6 no score converges in the strict sense: the bonus of a client that is not "
            "chosen grows without bound with the logarithm of all selections, until it is chosen.",
            "What is tested was written down before any run; the longer runs were added when the "
            "first had been seen, with five seeds (7.0 ± 3.4 %) and then with as many as those.",
        ),
    )


def _experiment(policies: Mapping[str, Policy[Any]], rounds: int, *, seeds: int) -> Experiment:
    return Experiment(
        federation=PUBLISHED_RULES,
        policies=policies,
        world=cell(_ETA),
        rounds=rounds,
        seeds=first_seeds(seeds),
        regret=False,
        watch=Watch(every=_EVERY, clients=100),
    )


def _scores(run: Run) -> Scores:
    assert run.scores is not None
    return run.scores


def movement(scores: Scores, first: float, last: float) -> FloatArray:
    """[n], highest less lowest score of each client between these shares of the rounds.

    NaN for clients without a score in all of them.
    """
    end = float(scores.rounds[-1])
    values = scores.values[_SCORE][(scores.rounds > first * end) & (scores.rounds <= last * end)]
    return np.asarray(values.max(axis=0) - values.min(axis=0))


def between_clients(scores: Scores) -> float:
    """The interquartile range of the last scores."""
    low, high = np.nanquantile(scores.last(_SCORE), [0.25, 0.75])
    return float(high - low)


def _relative(comparison: Comparison, label: str, first: float, last: float) -> FloatArray:
    """[seeds], the median client's movement in units of how much clients differ."""
    return np.array(
        [
            np.nanmedian(movement(scores, first, last)) / between_clients(scores)
            for scores in map(_scores, comparison.runs[label])
        ]
    )


def _converges(comparison: Comparison, label: str) -> Finding:
    before = _relative(comparison, label, 0.25, 0.5)
    after = _relative(comparison, label, 0.75, 1.0)
    calmer = paired(after, before, comparisons=len(_BANDITS)).verdict == "lower"
    settled = interval(after, level=1 - 0.05 / len(_BANDITS))
    return Finding(
        sentence=f"The evaluation values of {label} converge to a certain value (tested as: a "
        "client's score moves significantly less in the last quarter of the rounds than in the "
        f"second, and by less than {100 * _CALM:.0f} % of what clients differ by)",
        measured=f"the median client's score moves by {100 * before.mean():.1f} % of what clients "
        f"differ by in the second quarter, and by {percent(settled)} in the "
        "last",
        holds=calmer and settled.high < _CALM,
    )


def _converges_slowly(longer: Comparison) -> Finding:
    return _converges(longer, NAIVE)._replace(
        sentence=f"The same of {NAIVE} over {longer.rounds:,} rounds ({len(longer.seeds)} seeds)",
        ours=True,
    )


def _different_first(comparison: Comparison) -> Finding:
    shown = _SHOWN.watched(comparison.num_clients)
    of_ten = best_differs(comparison, shown)
    of_all = best_differs(comparison, np.arange(comparison.num_clients))
    agreement = interval(agreement_of_ranks(comparison))
    seeds = len(comparison.seeds)
    return Finding(
        sentence="The two algorithms assign their largest evaluation values to different clients "
        "(tested as: among the 10 clients shown, in most seeds)",
        measured=f"in {of_ten} of {seeds} seeds among 10 clients, in {of_all} among all "
        f"{comparison.num_clients}; the rank correlation of the two scores over all clients is "
        f"{number(agreement, 3)}",
        holds=2 * of_ten > seeds,
    )


def _last_scores(comparison: Comparison) -> Mapping[str, FloatArray]:
    """[seeds, K] by label; those who were never chosen are last."""
    return {
        label: np.stack(
            [
                np.nan_to_num(_scores(run).last(_SCORE), nan=-np.inf)
                for run in comparison.runs[label]
            ]
        )
        for label in _BANDITS
    }


def best_differs(comparison: Comparison, clients: IntArray) -> int:
    """In how many seeds the two policies score different clients highest."""
    one, other = (last[:, clients].argmax(axis=1) for last in _last_scores(comparison).values())
    return int(np.count_nonzero(one != other))


def agreement_of_ranks(comparison: Comparison) -> FloatArray:
    """[seeds], Spearman's correlation: of the ranks of the scores."""
    ranks = [last.argsort(axis=1).argsort(axis=1) for last in _last_scores(comparison).values()]
    return np.array([np.corrcoef(*of_seed)[0, 1] for of_seed in zip(*ranks, strict=True)])


def _ten_clients(comparison: Comparison) -> Comparison:
    """The same, as if no more had been watched than are shown."""
    shown = _SHOWN.watched(comparison.num_clients)

    def restricted(run: Run) -> Run:
        scores = _scores(run)
        values = {_SCORE: scores.values[_SCORE][:, shown]}
        return replace(run, scores=replace(scores, clients=shown, values=values))

    runs = {label: tuple(map(restricted, own)) for label, own in comparison.runs.items()}
    return replace(comparison, runs=runs)


def _table(comparison: Comparison) -> Table:
    quarters = ((0.25, 0.5), (0.5, 0.75), (0.75, 1.0))
    rows = []
    for label in _BANDITS:
        around = [interval(_relative(comparison, label, *quarter)) for quarter in quarters]
        differ = np.mean([between_clients(_scores(run)) for run in comparison.runs[label]])
        rows.append((label, *map(in_percent, around), f"{differ:.2f}"))
    return Table(
        title="How much a score moves in a quarter of the rounds (% of what clients differ by)",
        columns=("policy", "second", "third", "last", "what clients differ by"),
        rows=tuple(rows),
        footnotes=(
            "Of the median client; ± half-width of the 95 % Student-t interval over the seeds. In "
            "the first quarter not all clients have a score yet.",
        ),
    )


CLAIM = Claim(
    name="mab-cs-scores",
    source="MAB-CS, Fig. 4",
    statement="The clients' evaluation values converge to a certain value, and the two algorithms "
    "assign their largest values to different clients.",
    gather=_gather,
)
