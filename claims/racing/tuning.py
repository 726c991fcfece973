"""The choice of a learning rate by trials on seeds that judge nobody."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from fedmuster.core.records import FloatArray

Rate = TypeVar("Rate")


class Trial(NamedTuple):
    """A contestant with one learning rate on the tuning seeds: time to the level, and its end."""

    seconds: FloatArray
    ends: FloatArray


def best_rate(trials: Mapping[Rate, Trial]) -> Rate:
    """The learning rate that is soonest at the level; among equals, the one that ends highest.

    A rate whose time is infinite on one tuning seed takes for ever.
    """
    return min(
        trials, key=lambda rate: (float(trials[rate].seconds.mean()), -trials[rate].ends.mean())
    )
