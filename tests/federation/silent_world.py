"""A world in which some clients never answer."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.worlds.world import RoundDraw, World, WorldRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Silent:
    """Another world, in which the first clients never answer, whatever its deadline."""

    name: ClassVar[str] = "silent"
    hierarchical: ClassVar[bool] = False

    inner: World
    num_silent: int = 1

    def start(self, seed: int) -> WorldRun:
        run = self.inner.start(seed)

        def clients(number: int, rng: Generator) -> RoundDraw:
            draw = run.clients(number, rng)
            latency = draw.latency_seconds.copy()
            latency[: self.num_silent] = np.inf
            return replace(draw, latency_seconds=latency)

        return replace(run, clients=clients)
