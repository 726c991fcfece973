"""One ridge regression per client: what a context predicts, and how sure that is."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray, IntArray


@dataclass(slots=True)
class RidgeState:
    """For each client the inverse of ``H = lambda I + sum c c'`` and ``b = sum y c``."""

    inverse: FloatArray
    moment: FloatArray


def ridge(num_clients: int, dimension: int, regularisation: float) -> RidgeState:
    """Nobody observed yet: ``H = lambda I``, ``b = 0``."""
    return RidgeState(
        inverse=np.tile(np.eye(dimension) / regularisation, (num_clients, 1, 1)),
        moment=np.zeros((num_clients, dimension)),
    )


def predict(
    state: RidgeState, rows: IntArray | slice, context: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """``c · theta`` and ``||c||_{H^-1}`` of each row, with ``theta = H^-1 b``."""
    projected = np.einsum("nij,nj->ni", state.inverse[rows], context)
    prediction = np.einsum("ni,ni->n", projected, state.moment[rows])
    variance = np.einsum("ni,ni->n", projected, context)
    return prediction, np.sqrt(variance)


def learn(state: RidgeState, clients: IntArray, context: FloatArray, values: FloatArray) -> None:
    """One new observation for each of ``clients`` (distinct), by Sherman and Morrison."""
    inverse = state.inverse[clients]
    projected = np.einsum("nij,nj->ni", inverse, context)
    scale = 1.0 + np.einsum("ni,ni->n", projected, context)
    downdate = np.einsum("ni,nj->nij", projected, projected)
    state.inverse[clients] = inverse - downdate / scale[:, None, None]
    state.moment[clients] += values[:, None] * context
