"""The exact posterior: its covariance of all pairs, for a few thousand clients."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.state import derived
from fedmuster.estimators.gaussian_process.belief import Evidence
from fedmuster.estimators.gaussian_process.kernel import Kernel
from fedmuster.estimators.gaussian_process.triangular import lower_root, solve_lower

_BLOCK = 128  # rows: as much of the covariance as the cache holds


@dataclass(slots=True)
class ExactBelief:
    """Posterior mean [K] and covariance [K, K], of which only the lower triangle is kept.

    Conditioning on m observations costs K^2 m: half of what both triangles would.
    """

    mean: FloatArray = derived()
    covariance: FloatArray = derived()

    @classmethod
    def init(cls, num_clients: int) -> "ExactBelief":
        """Nothing believed yet, not even the prior."""
        return cls(mean=np.zeros(num_clients), covariance=np.zeros((num_clients, num_clients)))

    @property
    def variance(self) -> FloatArray:
        """Posterior variance of each client."""
        return self.covariance.diagonal()

    def rebuild(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """The prior, conditioned on everything at once."""
        self.mean[:] = 0.0
        explained = self._explained(kernel(attributes, attributes[evidence.clients]), evidence)
        for rows in self._rows():
            prior = kernel(attributes[rows], attributes[: rows.stop])
            prior -= explained[:, rows].T @ explained[:, : rows.stop]
            self.covariance[rows, : rows.stop] = prior

    def condition(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """A downdate of the covariance by as many ranks as there are observations."""
        explained = self._explained(self._columns(evidence.clients), evidence)
        for rows in self._rows():
            self.covariance[rows, : rows.stop] -= explained[:, rows].T @ explained[:, : rows.stop]

    def _explained(self, columns: FloatArray, evidence: Evidence) -> FloatArray:
        """Move the mean; V [m, K] with ``V' V`` what ``evidence`` explains of the covariance, of
        which ``columns`` are those of the observed clients."""
        clients = evidence.clients
        root = lower_root(columns[clients] + np.diag(evidence.noise))
        explained = solve_lower(root, columns.T)
        self.mean += solve_lower(root, evidence.values - self.mean[clients]) @ explained
        return explained

    def _columns(self, clients: IntArray) -> FloatArray:
        """Columns [K, m] of the covariance, from its lower triangle."""
        below = np.arange(len(self.mean))[:, None] >= clients
        return np.where(below, self.covariance[:, clients], self.covariance[clients].T)

    def _rows(self) -> Iterator[slice]:
        count = len(self.mean)
        return (slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))
