"""Derives horizons and targets from runs of random choice in rounds: ``python -m``, by hand.

The target of a setting is the highest accuracy that random choice in rounds reaches, at its best
learning rate, within 70 % of the horizon: in the world for judging, but on the tuning seeds. The
horizon in the world for tuning is chosen so that random choice in rounds reaches the target at 70 %
of it. Both times are smoothed over 3 % of the judging horizon, because the tuning horizon is the
result. ``python -m claims.league.calibrate [SETTING]...`` prints both beside the frozen numbers.
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
from fedmuster.core.errors import StateError

SHARE: Final = 0.7
"""The share of the horizon at which random choice in rounds reaches the target."""
_STEP = 0.005
_LONGER = 3.0
"""Runs in the world for tuning last this many judging horizons, until its own is found."""

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
    """The mean time to the target at the best learning rate, smoothed over 3 % of ``horizon``.

    Infinite if no learning rate reaches the target on every seed.
    """
    return min(
        float(np.mean([seconds_to(course, target, seconds=horizon) for course in own]))
        for own in found.values()
    )


def target_of(setting: LeagueSetting) -> float:
    """The highest accuracy that is reached within 70 % of the horizon.

    Raises:
        StateError: not even the lowest target is reached.
    """
    horizon = setting.judging.seconds
    found = courses(setting, setting.judging)
    targets = np.arange(0.2, 1.0, _STEP)
    reached = [best_seconds(found, target, horizon) <= SHARE * horizon for target in targets]
    if not any(reached):
        raise StateError(
            f"{setting.name}: random choice in rounds does not reach an accuracy of {targets[0]:g} "
            f"within {SHARE * horizon:g} s: choose a longer horizon or an easier task"
        )
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
