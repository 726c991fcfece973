"""Chooses a learning rate by trials on the tuning seeds, which are never used for judging."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from fedmuster.core.records import FloatArray

Rate = TypeVar("Rate")


class Trial(NamedTuple):
    """The time to the level and the final accuracy with one learning rate, by tuning seed."""

    seconds: FloatArray
    ends: FloatArray


def best_rate(trials: Mapping[Rate, Trial]) -> Rate:
    """The first of :func:`ranked_rates`."""
    return ranked_rates(trials)[0]


def ranked_rates(trials: Mapping[Rate, Trial]) -> list[Rate]:
    """The learning rates by the mean time to the level; among equals, the highest end comes first.

    A rate that does not reach the level on one tuning seed has an infinite mean time.
    """
    return sorted(
        trials, key=lambda rate: (float(trials[rate].seconds.mean()), -trials[rate].ends.mean())
    )
