"""What a client's data is worth to the training: by its losses (Oort), and by its gain (FedSUV)."""

import numpy as np

from fedmuster.core.records import Feedback, FloatArray, IntArray


def statistical_utility(feedback: Feedback, num_samples: FloatArray | IntArray) -> FloatArray:
    """``|B| sqrt(mean loss²)`` of each row, over the samples that it was trained on (Oort).

    From the signals "root_mean_square_loss" (or else "loss", which is the same where all samples
    are alike) and "trained_samples" (or else ``num_samples``, [n] or 0-d). NaN for those who did
    not answer or of whom no loss is known.

    Example:
        >>> feedback = Feedback(
        ...     round=1,
        ...     clients=np.array([4, 7]),
        ...     latency_seconds=np.ones(2),
        ...     signals={"root_mean_square_loss": np.array([0.5, 2.0])},
        ... )
        >>> statistical_utility(feedback, np.array([10, 30]))
        array([ 5., 60.])
    """
    loss = _signal(feedback, "root_mean_square_loss", _signal(feedback, "loss", np.array(np.nan)))
    samples = _signal(feedback, "trained_samples", np.asarray(num_samples, dtype=np.float64))
    return np.where(feedback.answered, samples * loss, np.nan)


def gained_utility(feedback: Feedback, num_samples: FloatArray | IntArray) -> FloatArray:
    """``u = L Delta`` of each row (FedSUV Eq. 3), or the signal "utility" where one is sent.

    ``L`` is :func:`statistical_utility`, ``Delta`` the signal "accuracy_gain", or 1 where no such
    signal is sent. NaN as there.
    """
    gain = _signal(feedback, "accuracy_gain", np.array(1.0))
    product = statistical_utility(feedback, num_samples) * gain  # FedSUV Eq. 3
    return np.where(feedback.answered, _signal(feedback, "utility", product), np.nan)


def known_utility(feedback: Feedback, num_samples: FloatArray | IntArray) -> FloatArray:
    """:func:`statistical_utility`, with ``num_samples`` in place of NaN; never below 0."""
    utility = statistical_utility(feedback, num_samples)
    return np.clip(np.where(np.isnan(utility), num_samples, utility), 0.0, _LARGEST)


_LARGEST = 1e100
"""A loss that makes more than this was not measured; the sums of such could overflow."""


def _signal(feedback: Feedback, name: str, otherwise: FloatArray) -> FloatArray:
    """[n], the signal row by row; ``otherwise`` in rows (or for all) where none was sent."""
    sent = feedback.signals.get(name, np.full(len(feedback.clients), np.nan))
    return np.where(np.isnan(sent), otherwise, sent)
