"""What a server makes of the answers of a round, those that come late among them."""

import numpy as np

from fedmuster.core.late_answers import Cached, LateAnswers, Stale
from fedmuster.core.records import IntArray
from fedmuster.learning.aggregation import Server
from fedmuster.learning.late.cache import CacheMerging
from fedmuster.learning.late.merging import Answers, Discarding, Merged, Merging
from fedmuster.learning.late.stale import StaleMerging
from fedmuster.learning.late.weighing import weighing
from fedmuster.learning.records import Parameters

__all__ = ["Answers", "Merged", "Merging", "merging"]


def merging(
    late_answers: LateAnswers,
    server: Server,
    sizes: IntArray,
    model: Parameters,
    *,
    num_trainable: int,
    min_answers: int,
) -> tuple[Merging, Server]:
    """How answers are merged as ``late_answers`` says, and the server that it needs for that.

    Args:
        late_answers: what becomes of late answers.
        server: the user's.
        sizes: [K], how much data each client has.
        model: the initial one.
        num_trainable: of its first so many parameters.
        min_answers: with fewer the model stays as it is.
    """
    data = sizes.astype(np.float64)
    if isinstance(late_answers, Stale):
        server, weights = weighing(server, data)
        stale = StaleMerging(
            late_answers,
            weights,
            num_parameters=len(model),
            num_trainable=num_trainable,
            min_answers=min_answers,
        )
        return stale, server
    if isinstance(late_answers, Cached):
        server, weights = weighing(server, data, clips=False)
        return CacheMerging(late_answers, weights, model), server
    return Discarding(data), server
