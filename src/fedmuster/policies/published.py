"""An index as policies publish it, see ``Policy.scores``."""

import numpy as np

from fedmuster.core.records import FloatArray


def published(index: FloatArray) -> dict[str, FloatArray]:
    """``{"score": index}`` with NaN, no score, for the unseen, whose index is infinite.

    Example:
        >>> published(np.array([0.5, np.inf]))
        {'score': array([0.5, nan])}
    """
    return {"score": np.where(np.isfinite(index), index, np.nan)}
