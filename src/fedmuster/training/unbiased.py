"""A server whose answers are weighted by the inverse of their inclusion probabilities."""

from typing import ClassVar

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.core.staleness import AgeAndNovelty, CachedModels, Discard
from fedmuster.training.combine import Combine, UniformMean, WeightedMean, WeightedSum
from fedmuster.training.servers import Answers, EdgeServer, ToCombine


class UnbiasedServer(EdgeServer):
    """The combined update is ``sum over answers of p_k / pi_k delta_k`` (Horvitz and Thompson).

    pi_k is the probability with which client k was chosen, and p_k its share in the target, the
    mean over all K clients: ``n_k / sum n`` if the server rule weights by data, 1/K if it weights
    all clients alike. If every asked client answers, the expectation over cohorts is
    ``sum over available clients of p_k delta_k``: with all K available, the update of full
    participation. Weights do not sum to 1, but their expectation does.

    The server rule takes this update as it takes a mean: FedAvg adds it to the model, FedAvgM and
    the adaptive rules take it for a gradient, of which it is an unbiased estimate.
    """

    combining: ClassVar[Combine | WeightedSum | None] = WeightedSum()

    def __post_init__(self) -> None:
        self._require_linear()
        super().__post_init__()
        if isinstance(self.rule.rule, UniformMean):
            self._weights = np.ones(len(self.sizes))
        self._weights = self._weights / self._weights.sum()

    def merge(self, answers: Answers) -> ToCombine:
        """The updates that enter the model, weighted by ``p_k / pi_k``."""
        entering = self.entering(answers)
        assert entering.inclusion is not None
        weights = self._weights[entering.updates.clients] / entering.inclusion
        factors = self.staleness.factors(entering.ages)
        return ToCombine(entering.updates, weights, len(weights), factors)

    def _require_linear(self) -> None:
        """Complain about rules whose result is no sum of answers with weights of their own."""
        reason = None
        if not isinstance(self.rule.rule, WeightedMean | UniformMean):
            reason = f"the server {self.rule.name!r} combines answers by {self.rule.rule.name!r}"
        elif self.rule.mixes_models:
            reason = f"the server {self.rule.name!r} mixes whole models"
        elif isinstance(self.staleness, AgeAndNovelty | CachedModels):
            reason = f"the staleness rule {self.staleness.name!r} has weights of its own"
        elif self.keeps_late and not isinstance(self.staleness, Discard):
            reason = f"the staleness rule {self.staleness.name!r} keeps answers that come too late"
        if reason is not None:
            raise ConfigError(
                'weighting = "unbiased" needs a sum over answers, each with the weight 1/pi, but '
                f"{reason}: choose a server that averages updates (fedavg), and in rounds "
                'staleness = { name = "discard" } in [federation]',
                key=("weighting",),
            )
