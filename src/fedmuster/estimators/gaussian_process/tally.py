"""All that must be remembered of the observations of each client."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.estimators.gaussian_process.likelihood import Sample


@dataclass(slots=True)
class Tally:
    """How often each client was observed, their mean, and the squared deviations from it."""

    count: IntArray
    mean: FloatArray
    spread: FloatArray

    @classmethod
    def init(cls, num_clients: int) -> "Tally":
        """Nobody observed yet."""
        return cls(
            count=np.zeros(num_clients, dtype=np.int64),
            mean=np.zeros(num_clients),
            spread=np.zeros(num_clients),
        )

    def of(self, clients: IntArray) -> "Tally":
        """A copy of the rows of ``clients``."""
        return Tally(self.count[clients], self.mean[clients], self.spread[clients])

    def add(self, clients: IntArray, values: FloatArray) -> None:
        """One new value for each of ``clients`` (distinct), by Welford's recursion."""
        self.count[clients] += 1
        away = values - self.mean[clients]
        self.mean[clients] += away / self.count[clients]
        self.spread[clients] += away * (values - self.mean[clients])

    def location_and_scale(self) -> tuple[float, float]:
        """Mean and standard deviation of all observations, of which there must be one.

        Where all of them are equal, their size is the only scale that there is.
        """
        seen = self.of(np.flatnonzero(self.count))
        total = seen.count.sum()
        location = float(seen.count @ seen.mean / total)
        squares = seen.spread.sum() + seen.count @ (seen.mean - location) ** 2
        scale = float(np.sqrt(squares / total))
        if scale > 1e-12 * abs(location):
            return location, scale
        return location, abs(location) or 1.0

    def sample(
        self, attributes: FloatArray, location: float, scale: float, *, at_most: int
    ) -> Sample:
        """Observed clients, evenly spaced if there are more than ``at_most``; standardised."""
        seen = np.flatnonzero(self.count)
        if len(seen) > at_most:
            seen = seen[np.arange(at_most) * len(seen) // at_most]
        tally = self.of(seen)
        return Sample(
            attributes=attributes[seen],
            count=tally.count,
            mean=(tally.mean - location) / scale,
            spread=tally.spread / scale**2,
        )
