"""A race: each contestant finds its learning rate on some seeds and runs with it on others."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from claims.claim import RunCells, seeds
from claims.racing.contestant import Contestant
from claims.racing.milestones import Milestones, all_seconds_to, end_level
from claims.racing.tuning import Trial, best_rate
from claims.roundless.contestants import CONTESTANTS, RANDOM
from claims.roundless.settings import RaceSetting
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out_or_complete
from fedmuster.report.runs import Run, load

GRID: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""The learning rates that every contestant may choose from."""
BASE_RATE: Final = 0.05
"""The learning rate of the run whose end is the level to reach."""
BASELINE: Final = f"{RANDOM}, {BASE_RATE:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much is run: the learning rates, and how many seeds choose and judge.

    Args:
        grid: the learning rates, with :data:`BASE_RATE` among them.
        judging: seeds whose runs are reported.
        tuning: further seeds, by which learning rates are chosen.
    """

    grid: tuple[float, ...] = GRID
    judging: int = 5
    tuning: int = 2

    @property
    def judging_seeds(self) -> tuple[int, ...]:
        """The seeds whose runs are reported."""
        return seeds(self.judging)

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """The seeds by which learning rates are chosen; none of them is reported."""
        return seeds(self.judging + self.tuning)[self.judging :]


Trials = Mapping[str, Mapping[float, Trial]]
"""By label and learning rate."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RaceResult(Milestones):
    """What came out in one setting; the level is the accuracy at which :data:`BASELINE` ends.

    Args:
        runs: on the judging seeds, with the chosen rates, and those of the baseline.
        levels: [seeds], the accuracy at which the baseline ends.
        horizon_seconds: how long runs last.
        setting: the setting.
        rates: the learning rate that each contestant has chosen.
        trials: what it has chosen from.
    """

    setting: RaceSetting
    rates: Mapping[str, float]
    trials: Trials


def race(setting: RaceSetting, plan: Plan, folder: Path, run: RunCells) -> RaceResult:
    """Tune, then run."""
    trials = tune(setting, plan, folder / "tuning", run)
    rates = {label: best_rate(own) for label, own in trials.items()}
    known = {contestant.label: contestant for contestant in CONTESTANTS}
    baseline = replace(known[RANDOM], label=BASELINE)
    wanted = [(known[label], rate) for label, rate in rates.items()] + [(baseline, BASE_RATE)]
    runs = _play(setting, wanted, plan.judging_seeds, folder / "judging", run)
    played = {label: runs[label, rate] for label, rate in (*rates.items(), (BASELINE, BASE_RATE))}
    return RaceResult(
        setting=setting,
        rates=rates,
        trials=trials,
        runs=played,
        levels=np.array([end_level(own) for own in played[BASELINE]]),
        horizon_seconds=setting.seconds,
    )


def tune(setting: RaceSetting, plan: Plan, folder: Path, run: RunCells) -> Trials:
    """Every contestant with every learning rate on the tuning seeds."""
    runs: dict[tuple[str, float], tuple[Run, ...]] = {}
    for rate in plan.grid:
        wanted = [(contestant, rate) for contestant in CONTESTANTS]
        runs |= _play(setting, wanted, plan.tuning_seeds, folder, run)
    levels = np.array([end_level(own) for own in runs[RANDOM, BASE_RATE]])
    trials: defaultdict[str, dict[float, Trial]] = defaultdict(dict)
    for (label, rate), own in runs.items():
        ends = np.array([end_level(one) for one in own])
        seconds = all_seconds_to(own, levels, seconds=setting.seconds)
        trials[label][rate] = Trial(seconds, ends)
    return trials


def _play(
    setting: RaceSetting,
    wanted: Sequence[tuple[Contestant, float]],
    of_seeds: tuple[int, ...],
    folder: Path,
    run: RunCells,
) -> dict[tuple[str, float], tuple[Run, ...]]:
    """The runs of contestants with their learning rates, which face the same luck."""
    alike: defaultdict[tuple[float, int], list[Contestant]] = defaultdict(list)
    for contestant, rate in wanted:
        alike[rate, contestant.evaluate_every].append(contestant)
    experiments: dict[tuple[float, Path], Experiment] = {}
    for (rate, interval), contestants in alike.items():
        path = folder / f"rate-{rate:g}-every-{interval}"
        experiments[rate, path] = setting.experiment(contestants, rate=rate, seeds=of_seeds)
    cells = [lay_out_or_complete(path, own) for (_, path), own in experiments.items()]
    run({place: cell for some in cells for place, cell in some.items()})
    return {
        (label, rate): own for rate, path in experiments for label, own in load([path]).runs.items()
    }
