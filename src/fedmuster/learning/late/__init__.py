"""What a server makes of the answers of a round, those that come late among them."""

import numpy as np

from fedmuster.core.late_answers import Cached, LateAnswers, Stale
from fedmuster.core.records import IntArray
from fedmuster.learning.aggregation import Server
from fedmuster.learning.late.cache import CacheMerger
from fedmuster.learning.late.merger import (
    NOBODY,
    Answers,
    DiscardingMerger,
    Merger,
    ToCombine,
    some,
)
from fedmuster.learning.late.stale import StaleMerger
from fedmuster.learning.late.weighted_server import weighted_server
from fedmuster.learning.records import Parameters

__all__ = ["NOBODY", "Answers", "Merger", "ToCombine", "merger_for", "some"]


def merger_for(
    late_answers: LateAnswers,
    server: Server,
    sizes: IntArray,
    model: Parameters,
    *,
    num_trainable: int,
    min_answers: int,
) -> tuple[Merger, Server]:
    """Who merges answers as ``late_answers`` says, and the server that this needs.

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
        server, weights = weighted_server(server, data)
        stale = StaleMerger(
            late_answers,
            weights,
            num_parameters=len(model),
            num_trainable=num_trainable,
            min_answers=min_answers,
        )
        return stale, server
    if isinstance(late_answers, Cached):
        server, weights = weighted_server(server, data, clips=False)
        return CacheMerger(late_answers, weights, model), server
    return DiscardingMerger(data), server
