"""REFL's staleness-aware aggregation: late updates count in the round in which they come."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fedmuster.core.blocks import blocks
from fedmuster.core.late_answers import Stale
from fedmuster.core.records import BoolArray, FloatArray, IntArray, Late
from fedmuster.core.state import Array
from fedmuster.learning.combine import Deltas, WeightedMean
from fedmuster.learning.engine import Engine
from fedmuster.learning.late.merger import Answers, ToCombine, some
from fedmuster.learning.late.pending import Pending
from fedmuster.learning.records import Parameters, Updates


class StaleMerger:
    """Late updates weigh the less the older they are, and the more the more they differ.

    A client that is late trains from the model of the round t0 in which it was asked. In the first
    round t whose end finds its update arrived, the update enters the mean with, for a fresh
    one's 1, the weight ``(1 - b) / (tau + 1) + b (1 - exp(-L / Lmax))``: tau = t - t0, L is by how
    much it would move the mean of the fresh updates, ``||(u + n m) / (n + 1) - m||² / ||m||²``,
    and Lmax is the largest L of the round.

    - These weights multiply those of the server's mean: a server with uniform weights is REFL's.
      With weights by data, L takes n + 1 for the data of the fresh and of the late one.
    - Without fresh updates there is nothing to compare with: what has arrived waits for a round
      that has some, as in the authors' code. It also waits while there are too few answers.
    - Updates are merged, as the paper has it; the authors' code merges whole models.

    References:
        A. M. Abdelmoniem, A. N. Sahu, M. Canini, S. A. Fahmy, REFL: Resource-Efficient Federated
        Learning, EuroSys 2023, section on staleness-aware aggregation; ``update_importance`` in
        the authors' code.

    Args:
        config: the policy's.
        weights: [K], what clients weigh in the server's mean.
        num_parameters: of the model.
        num_trainable: only these make up L.
        min_answers: with fewer, fresh and late, the model stays as it is.
    """

    keeps_late: ClassVar[bool] = True

    def __init__(
        self,
        config: Stale,
        weights: FloatArray,
        *,
        num_parameters: int,
        num_trainable: int,
        min_answers: int,
    ) -> None:
        self._config = config
        self._weights = weights
        self._num_trainable = num_trainable
        self._min_answers = min_answers
        self._pending = Pending(num_parameters)

    @property
    def busy(self) -> Late:
        """Whose update is on its way."""
        return self._pending.on_their_way

    def train(
        self, engine: Engine, model: Parameters, clients: IntArray, round_number: int
    ) -> Updates:
        """All from the global model."""
        return engine.train(model, clients, round_number)

    def merge(self, model: Parameters, answers: Answers) -> ToCombine:
        """The fresh updates, and the late ones that have arrived."""
        del model
        pending, oldest = self._pending, self._config.max_rounds
        pending.now_seconds = answers.ends_at_seconds
        if oldest is not None:
            pending.drop(pending.arrived & (answers.round - pending.rounds > oldest))
        fresh = some(answers.updates, answers.used)
        merged = ToCombine(fresh, self._weights[fresh.clients], len(fresh.clients))
        due = pending.arrived
        count = merged.num_answers + int(np.count_nonzero(due))
        if count > merged.num_answers > 0 and count >= self._min_answers:
            merged = self._with_late(merged, due, answers.round)
            pending.drop(due)
        # Added last: what arrives in a round can have been asked for in an earlier one only.
        late = answers.late
        pending.add(late.clients, answers.round, answers.arrives_at_seconds, late.deltas)
        return merged

    def arrays(self) -> dict[str, Array]:
        """What is pending."""
        return self._pending.arrays()

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        self._pending.load(arrays)

    def _with_late(self, fresh: ToCombine, due: BoolArray, round_number: int) -> ToCombine:
        pending, beta = self._pending, self._config.beta
        clients, deltas = pending.clients[due], pending.vectors[due]
        weights, trained = self._weights[clients], slice(self._num_trainable)
        change = _change(
            fresh.updates.deltas[:, trained], fresh.weights, deltas[:, trained], weights
        )
        tau = round_number - pending.rounds[due]
        share = np.divide(change, change.max(), out=np.zeros(len(change)), where=change.max() > 0)
        # REFL's weight of a late update: (1 - b) / (tau + 1) + b (1 - exp(-L / Lmax))
        factor = (1 - beta) / (tau + 1) + beta * (1 - np.exp(-share))
        both = Updates(
            clients=np.concatenate([fresh.updates.clients, clients]),
            deltas=np.concatenate([fresh.updates.deltas, deltas]),
            signals={},
        )
        return ToCombine(both, np.concatenate([fresh.weights, weights * factor]), len(both.clients))


def _change(
    fresh: Deltas, fresh_weights: FloatArray, late: Deltas, late_weights: FloatArray
) -> FloatArray:
    """[s], how far each late update would move the fresh mean m, squared.

    ``(b u + B m) / (b + B) - m = b / (b + B) (u - m)``. Without the ``||m||²`` that all L have
    in common, for only their ratios count.
    """
    mean = WeightedMean().combine(fresh, fresh_weights)
    squares = [
        sum(float(np.square(row[b] - mean[b], dtype=np.float64).sum()) for b in blocks(len(row)))
        for row in late
    ]
    moved = late_weights / (late_weights + fresh_weights.sum())
    return np.asarray(moved**2 * np.array(squares))
