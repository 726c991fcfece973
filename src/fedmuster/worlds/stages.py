"""Rounds of two stages, one after the other: first compute, then communicate."""

from abc import ABC, abstractmethod

from numpy.random import Generator

from fedmuster.core.records import FloatArray


class TwoStages(ABC):
    """A :class:`~fedmuster.worlds.latency.LatencyLaw` whose latencies are sums of two."""

    __slots__ = ()

    @abstractmethod
    def draw_stages(self, rng: Generator) -> tuple[FloatArray, FloatArray]:
        """[K] each, the seconds of one round to compute and to communicate."""

    def total(self, compute: FloatArray, communication: FloatArray) -> FloatArray:
        """[K], the latency of a round with these stages."""
        return compute + communication

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`~fedmuster.worlds.latency.LatencyLaw`."""
        return self.total(*self.draw_stages(rng))
