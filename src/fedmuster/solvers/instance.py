"""The combinatorial problem behind every bottleneck bandit, and the energy of a cohort."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray, is_integer
from fedmuster.objectives.diversity import repeats


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """Maximise ``min_S u + (1/m) sum_S w - penalty * sum_r max(0, |S ∩ C_r| - 1)`` over m-sets S.

    BSFL Eq. 13 and PAUSE Eq. 14 with 18 have no penalty; PAUSE Eq. 22 has ``penalty = alpha rho``.

    Args:
        bottleneck: u, one value per candidate; ``+inf`` for candidates that were never seen.
        weight: w, finite.
        size: m, 1 … number of candidates.
        clusters: a label >= 0 for each candidate; None when there is no penalty.
        penalty: >= 0, per further client of the same cluster. Below 0 the sweep would not be
            exact, so it is refused.
    """

    bottleneck: FloatArray
    weight: FloatArray
    size: int
    clusters: IntArray | None = None
    penalty: float = 0.0

    def __post_init__(self) -> None:
        try:  # copies nothing that is of the right type already
            object.__setattr__(self, "bottleneck", np.asarray(self.bottleneck, dtype=np.float64))
            object.__setattr__(self, "weight", np.asarray(self.weight, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(f"Instance: bottleneck and weight must hold numbers: {error}") from None
        shape = self.bottleneck.shape
        if len(shape) != 1 or self.weight.shape != shape:
            raise DataError(
                f"Instance: bottleneck {shape} and weight {self.weight.shape} must be two lists "
                "of the same length"
            )
        if not is_integer(self.size, least=1) or self.size > shape[0]:
            raise DataError(f"Instance: size is {self.size}, expected 1 … {shape[0]}")
        if not self.penalty >= 0 or not np.isfinite(self.penalty):
            raise DataError(f"Instance: penalty is {self.penalty}, expected a number >= 0")
        if self.clusters is not None:
            labels = np.asarray(self.clusters)
            if labels.shape != shape or not np.issubdtype(labels.dtype, np.integer):
                raise DataError(
                    f"Instance: clusters is {labels.dtype}{labels.shape}, expected int64{shape}"
                )
            object.__setattr__(self, "clusters", labels.astype(np.int64, copy=False))
        if self.penalty > 0 and self.clusters is None:
            raise DataError("Instance: a penalty needs clusters")

    def energy(self, positions: IntArray) -> float:
        """The value of the cohort at ``positions`` (BSFL Eq. 13; PAUSE Eq. 19, 22)."""
        slowest, rest = self.parts(positions)
        return slowest + rest

    def parts(self, positions: IntArray) -> tuple[float, float]:
        """The bottleneck and the additive part of the energy.

        Infinite energies tie; their additive parts decide.
        """
        # The mean, so that a cohort of another size than m (everyone, say) can be judged too.
        rest = float(self.weight[positions].mean())
        if self.penalty > 0 and self.clusters is not None:
            rest -= self.penalty * repeats(self.clusters[positions])
        return float(self.bottleneck[positions].min()), rest
