"""Who took part in a round: COCS's X."""

from fedmuster.core.records import BoolArray, Feedback


def participated(feedback: Feedback) -> BoolArray:
    """bool[n], who answered, and in time (``X = 1``, in the text below COCS Eq. 6).

    A federation that waits for some answers beyond its deadline (COCS Eq. 6) says by the signal
    "in_time" which those were, and they count as failures; without it, whoever answered was in
    time.

    Example:
        >>> import numpy as np
        >>> feedback = Feedback(
        ...     round=1,
        ...     clients=np.arange(3),
        ...     latency_seconds=np.array([1.0, 5.0, np.inf]),
        ...     completed=np.array([True, True, False]),
        ...     signals={"in_time": np.array([1.0, 0.0, np.nan])},
        ... )
        >>> participated(feedback)
        array([ True, False, False])
    """
    in_time = feedback.signals.get("in_time")
    return feedback.answered if in_time is None else feedback.answered & (in_time > 0)
