"""What a fifth of the clients gains by attacking, for every policy, with and without defence."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play, seeds
from claims.racing.milestones import all_seconds_to, end_level
from claims.trust.attacks import ATTACKS, CLIP_NORM, COHORT, FULL, HONEST, QUICK, SHARE, WORLD, Plan
from claims.trust.figures import gains
from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.tables import Table

_MOST_SHARE: Final = 1.5
_MOST_TIME: Final = {"tempo": 1.15}
_MOST_TIME_OF_OTHERS: Final = 1.3
_LEVEL: Final = 0.95
"""Of the accuracy at which random choice among honest clients ends."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Results:
    """The runs of all policies under all attacks.

    Args:
        comparisons: by attack, and whether there was a defence.
        adversaries: bool[seeds, K], the clients that attack, or would.
        seconds: how long runs last.
    """

    comparisons: Mapping[tuple[str, bool], Comparison]
    adversaries: BoolArray
    seconds: float

    @property
    def policies(self) -> tuple[str, ...]:
        """By name."""
        return tuple(self.comparisons[HONEST, False].runs)

    @property
    def attacks(self) -> tuple[str, ...]:
        """All but honesty."""
        return tuple(dict.fromkeys(attack for attack, _ in self.comparisons if attack != HONEST))

    def runs(self, policy: str, attack: str, *, defended: bool) -> tuple[Run, ...]:
        """A run for each seed."""
        return self.comparisons[attack, defended].runs[policy]

    def share(self, policy: str, attack: str, *, defended: bool) -> float:
        """The share of places that the adversaries get, over all seeds."""
        theirs = places = 0
        for run, mask in zip(
            self.runs(policy, attack, defended=defended), self.adversaries, strict=True
        ):
            theirs += int(mask[run.chosen].sum())
            places += len(run.chosen)
        return theirs / places

    def gain(self, policy: str, attack: str, *, defended: bool) -> float:
        """Their share, over the share of the same clients if they are honest."""
        honest = self.share(policy, HONEST, defended=False)
        return self.share(policy, attack, defended=defended) / honest

    def round_seconds(self, policy: str, attack: str, *, defended: bool) -> float:
        """The mean time between two aggregations."""
        runs = self.runs(policy, attack, defended=defended)
        return float(np.mean([run.columns["seconds"].mean() for run in runs]))

    def seconds_to_level(self, policy: str, attack: str, *, defended: bool) -> FloatArray:
        """[seeds], the time until the accuracy is at the level; infinite where it never is."""
        base = self.runs("random", HONEST, defended=False)
        levels = _LEVEL * np.array([end_level(run) for run in base])
        runs = self.runs(policy, attack, defended=defended)
        return all_seconds_to(runs, levels, seconds=self.seconds)

    def delay(self, policy: str, attack: str, *, defended: bool) -> float:
        """The time to the level, over that of the same policy where all are honest: the mean of
        the seeds; infinite where a seed is never there, NaN where honest clients are not."""
        honest = self.seconds_to_level(policy, HONEST, defended=False)
        if not np.isfinite(honest).all():
            return np.nan
        return float((self.seconds_to_level(policy, attack, defended=defended) / honest).mean())


def shares_stay_small(results: Results) -> Finding:
    """The bar on places."""
    gains = {
        (policy, attack): results.gain(policy, attack, defended=True)
        for policy in results.policies
        for attack in results.attacks
    }
    missed = {key: gain for key, gain in gains.items() if gain > _MOST_SHARE + _ROUNDING}
    return Finding(
        sentence=f"With the defence on, {SHARE:.0%} adversaries of any kind get at most "
        f"{_MOST_SHARE:g} times the places that the same clients get when they are honest, with "
        "every policy",
        measured=_counted(gains, missed, "× the places"),
        holds=not missed,
    )


def time_is_kept(results: Results, *, of_tempo: bool) -> Finding:
    """The bar on time to accuracy."""
    policies = [name for name in results.policies if (name in _MOST_TIME) == of_tempo]
    most = _MOST_TIME["tempo"] if of_tempo else _MOST_TIME_OF_OTHERS
    delays = {
        (policy, attack): results.delay(policy, attack, defended=True)
        for policy in policies
        for attack in results.attacks
    }
    # a policy that does not reach the level among honest clients either tells nothing of liars
    delays = {key: delay for key, delay in delays.items() if not np.isnan(delay)}
    missed = {key: delay for key, delay in delays.items() if delay > most + _ROUNDING}
    whose = "tempo" if of_tempo else "every other policy"
    return Finding(
        sentence=f"With the defence on, {whose} needs at most {most:g} times the time to the level "
        "that it needs where all are honest and there is no defence",
        measured=_counted(delays, missed, "× the time"),
        holds=not missed,
    )


def defence_pays(results: Results) -> Finding:
    """What the same attacks gain without any defence."""
    gains = {
        (policy, attack): results.gain(policy, attack, defended=False)
        for policy in results.policies
        for attack in results.attacks
    }
    missed = {key: gain for key, gain in gains.items() if gain > _MOST_SHARE + _ROUNDING}
    return Finding(
        sentence="Without the defence adversaries get more than that with some policy",
        measured=_counted(gains, missed, "× the places"),
        holds=bool(missed),
        ours=True,
    )


def _counted(
    values: Mapping[tuple[str, str], float], missed: Mapping[tuple[str, str], float], unit: str
) -> str:
    """How many of the cases miss the bar, and the worst of each attack."""
    if not missed:
        return f"0 of {len(values)} cases above it"
    worst: dict[str, tuple[str, float]] = {}
    for (policy, attack), value in missed.items():
        if attack not in worst or value > worst[attack][1]:
            worst[attack] = policy, value
    told = "; ".join(
        f"{attack}: {sum(key[1] == attack for key in missed)} policies, at most "
        f"{_times(value)} ({policy})"
        for attack, (policy, value) in worst.items()
    )
    return f"{len(missed)} of {len(values)} cases above it ({unit}): {told}"


def _times(value: float) -> str:
    if np.isnan(value):
        return "–"
    return "never" if np.isinf(value) else f"{value:.2f}"


def _table(results: Results, title: str, of: str, form: str, *, footnote: str) -> Table:
    """A number without defence and with it, for each policy and attack."""

    def cell(policy: str, attack: str) -> str:
        values = [getattr(results, of)(policy, attack, defended=on) for on in (False, True)]
        return " → ".join(_times(v) if not np.isfinite(v) else form.format(v) for v in values)

    columns = (HONEST, *results.attacks)
    return Table(
        title=title,
        columns=("policy", *columns),
        rows=tuple(
            (policy, *(cell(policy, attack) for attack in columns)) for policy in results.policies
        ),
        footnotes=(footnote,),
    )


def run_plan(plan: Plan, folder: Path, run: RunCells) -> Results:
    """Play all policies under all attacks, with and without defence."""
    chosen = seeds(plan.num_seeds)
    comparisons = {}
    for number, attack in enumerate(plan.attacks):
        for defended in (False, True):
            place = folder / f"{number}-{'defended' if defended else 'plain'}"
            experiment = plan.experiment(attack, defended=defended, seeds=chosen)
            comparisons[attack, defended] = play(experiment, place, run)
    attacker = next(kind for kind in ATTACKS.values() if kind is not None)
    masks = [attacker.start(WORLD.num_clients, seed).mask for seed in chosen]
    return Results(comparisons=comparisons, adversaries=np.array(masks), seconds=plan.seconds)


def _gather(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    plan = QUICK if quick else FULL
    results = run_plan(plan, folder, run)
    table = partial(_table, results)
    return Evidence(
        setting=f"{WORLD.num_clients} clients in ten groups (0.1 to 1 s a job), {COHORT} asked at "
        f"a time, {SHARE:.0%} of them adversaries, the same ones for all policies; digits with "
        f"labels by Dirichlet(0.3), an MLP; {plan.seconds:g} s of simulated time, "
        f"{plan.num_seeds} seeds. The defence checks reports and updates (check_reports = true) "
        f"and clips updates (clip_norm = {CLIP_NORM:g}). Policies have their default settings, and "
        "work in rounds or without as they were published.",
        findings=(
            shares_stay_small(results),
            time_is_kept(results, of_tempo=True),
            time_is_kept(results, of_tempo=False),
            defence_pays(results),
        ),
        tables=(
            table(
                "Places of the adversaries",
                "share",
                "{:.2f}",
                footnote="Share of all places, without → with the defence. Under honest: the same "
                "clients, telling the truth.",
            ),
            table(
                "Seconds between two aggregations",
                "round_seconds",
                "{:.2f}",
                footnote="Of simulated time, without → with the defence.",
            ),
            table(
                "Time to the level",
                "delay",
                "{:.2f}",
                footnote="Over the time of the same policy where all are honest and there is no "
                "defence; without → with the defence. Never: not in every seed. –: not where all "
                "are honest either.",
            ),
        ),
        figures={"gains": gains(results)},
        notes=_NOTES,
    )


_NOTES = (
    "The level is 95 % of the accuracy at which random choice among honest clients ends, in each "
    "seed its own; accuracies are averaged over the last 3 % of the time before they count.",
    "Losses × 2 are within what honest clients with such data report: a claim that could be true "
    "cannot be told from the truth.",
    "Why not a robust mean: a cohort of ten with five or more poisoned updates, one in 30 at "
    "random, turns any of them; rounds that close with two answers, as Tempo's, leave nothing to "
    "compare; and a fifth of flipped signs passes for part of the truth. A server that remembers "
    "whose updates pointed against the others does better with a clipped mean (docs/liars.md).",
    "Sybils are at work on one machine, so policies that look at speed leave them alone unchecked.",
)


CLAIM: Final = Claim(
    name="liars",
    source="fedmuster's own",
    statement="Clients that lie about their time or their losses, keep silent, share a machine or "
    "poison their updates gain little, whatever the policy, where reports and updates are checked "
    "and updates clipped, and the model is hardly later at the same accuracy.",
    gather=_gather,
)
