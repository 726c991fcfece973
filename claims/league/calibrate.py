"""Derives horizons and targets from runs of random choice in rounds: ``python -m``, by hand.

The target of a setting is the highest accuracy that random choice in rounds reaches, at its best
learning rate, within 70 % of the horizon: in the world that judges, but on the tuning seeds. The
horizon in the world that tunes is then such that it reaches the target at 70 % of it, too.
``python -m claims.league.calibrate [SETTING]...`` prints both beside the numbers that are frozen.
"""

import sys
from dataclasses import replace
from typing import Final

import numpy as np

from claims.league.cells import PlayedCourse
from claims.league.contestants import base
from claims.league.plan import RATES, TUNING_SEEDS, Choice, cell_of
from claims.league.settings import SETTINGS, Arena, LeagueSetting
from claims.racing.milestones import seconds_to

SHARE: Final = 0.7
"""Of the horizon, at which random choice in rounds is at the target."""
_STEP = 0.005
_LONGER = 3.0
"""How much longer than for judging runs in the world for tuning last, until a horizon is found."""

Courses = dict[float, list[PlayedCourse]]


def courses(setting: LeagueSetting, arena: Arena) -> Courses:
    """By learning rate, on the tuning seeds."""
    return {
        rate: [
            cell_of(
                base(), setting, arena, Choice(rate, base().servers[0]), seed, target=2.0
            ).course()
            for seed in TUNING_SEEDS
        ]
        for rate in RATES
    }


def best_seconds(found: Courses, target: float, horizon: float) -> float:
    """The mean time to the target at the best learning rate; infinite if none always gets there."""
    return min(
        float(np.mean([seconds_to(course, target, seconds=horizon) for course in own]))
        for own in found.values()
    )


def target_of(setting: LeagueSetting) -> float:
    """The highest accuracy that is reached within 70 % of the horizon."""
    horizon = setting.judging.seconds
    found = courses(setting, setting.judging)
    targets = np.arange(0.2, 1.0, _STEP)
    reached = [best_seconds(found, target, horizon) <= SHARE * horizon for target in targets]
    return round(float(targets[np.flatnonzero(reached)[-1]]), 3)


def tuning_horizon_of(setting: LeagueSetting, target: float) -> float:
    """The time after which the target is reached at 70 %, to two digits."""
    horizon = setting.judging.seconds
    longer = replace(setting.tuning, seconds=_LONGER * horizon)
    seconds = best_seconds(courses(setting, longer), target, horizon) / SHARE
    return float(f"{seconds:.2g}")


def main(names: list[str]) -> None:
    """Print what is derived for these settings, or for all."""
    for setting in SETTINGS:
        if not names or setting.name in names:
            target = target_of(setting)
            horizon = tuning_horizon_of(setting, target)
            sys.stdout.write(
                f"{setting.name}: target {target:g} (frozen: {setting.target:g}), horizon for "
                f"tuning {horizon:g} s (frozen: {setting.tuning.seconds:g} s)\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
