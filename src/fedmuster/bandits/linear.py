"""Ridge regressions: what a context predicts, and how sure that is.

One for each client, of contexts that change from round to round (:func:`ridge`); one for all
clients together, of such contexts (:func:`shared_ridge`); or one for all clients together, of
attributes that do not change (:class:`LinearModel`).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, blocks
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.state import given, shared


def standardised(attributes: FloatArray) -> FloatArray:
    """Columns of mean 0 and standard deviation 1; one that is the same for all becomes 0.

    Example:
        >>> standardised(np.array([[1.0, 5.0], [3.0, 5.0]]))
        array([[-1.,  0.],
               [ 1.,  0.]])
    """
    if attributes.ndim != 2 or not len(attributes) or not np.isfinite(attributes).all():
        raise DataError(
            f"standardised: attributes of shape {attributes.shape}, expected finite numbers "
            "[K, d], one row for each client"
        )
    # Between 0 and 1 first, so that squares neither overflow nor vanish, whatever the units, and
    # what is the same for all is exactly 0 instead of rounding errors blown up to size one.
    half = 0.5 * attributes
    result = half - half.min(axis=0)
    largest = result.max(axis=0)
    result /= np.where(largest > 0, largest, 1.0)
    result -= result.mean(axis=0)
    result /= np.where(largest > 0, result.std(axis=0), 1.0)
    return np.asarray(result)


LARGEST_FEATURE: Final = 1e6
"""Its square still leaves four digits for features of size one in a sum of doubles."""


def require_moderate(features: FloatArray | None, available: BoolArray, *, owner: str) -> None:
    """Refuse features of an available client that would drown those of all others.

    Args:
        features: [K, …].
        available: bool[K]; features of other clients do not matter.
        owner: the policy, for the message.
    """
    if features is None or np.abs(features).max(initial=0.0) <= LARGEST_FEATURE:
        return
    largest = np.abs(features).reshape(len(features), -1).max(axis=1)
    client = int(np.argmax(np.where(available, largest, 0.0)))
    if available[client] and largest[client] > LARGEST_FEATURE:
        raise DataError(
            f"select: {owner} fits a linear model, and a feature of client {client} has the size "
            f"{largest[client]:g}, expected at most {LARGEST_FEATURE:g}: scale features to sizes "
            "of about 1, or leave the client out of available"
        )


def moderated(features: FloatArray) -> FloatArray:
    """The features within ± :data:`LARGEST_FEATURE`; larger ones belong to unavailable clients."""
    return np.clip(features, -LARGEST_FEATURE, LARGEST_FEATURE)


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
    return prediction, np.sqrt(np.maximum(variance, 0.0))  # rounding may leave less than 0


def learn(state: RidgeState, clients: IntArray, context: FloatArray, values: FloatArray) -> None:
    """One new observation for each of ``clients`` (distinct), by Sherman and Morrison."""
    inverse = state.inverse[clients]
    projected = np.einsum("nij,nj->ni", inverse, context)
    scale = 1.0 + np.maximum(np.einsum("ni,ni->n", projected, context), 0.0)
    downdate = np.einsum("ni,nj->nij", projected, projected)
    state.inverse[clients] = inverse - downdate / scale[:, None, None]
    state.moment[clients] += values[:, None] * context


@dataclass(slots=True)
class SharedRidgeState:
    """Of all clients together ``H = lambda I + sum c c'`` and ``b = sum y c``."""

    precision: FloatArray = shared()
    moment: FloatArray = shared()


def shared_ridge(dimension: int, regularisation: float) -> SharedRidgeState:
    """Nothing observed yet: ``H = lambda I``, ``b = 0``."""
    return SharedRidgeState(
        precision=regularisation * np.eye(dimension), moment=np.zeros(dimension)
    )


def predict_together(state: SharedRidgeState, context: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``c · theta`` and ``||c||_{H^-1}`` of each row of ``context`` [n, d].

    Example:
        >>> state = shared_ridge(1, 1.0)
        >>> learn_together(state, np.array([[1.0]]), np.array([1.0]))
        >>> predict_together(state, np.array([[1.0], [2.0]]))
        (array([0.5, 1. ]), array([0.70710678, 1.41421356]))
    """
    return _predict(state.precision, state.moment, context)


def learn_together(state: SharedRidgeState, context: FloatArray, values: FloatArray) -> None:
    """One new observation for each row of ``context`` [n, d]."""
    state.precision += context.T @ context
    state.moment += values @ context


def _predict(
    precision: FloatArray, moment: FloatArray, design: FloatArray
) -> tuple[FloatArray, FloatArray]:
    try:
        theta = np.linalg.solve(precision, moment)
        root = np.linalg.inv(np.linalg.cholesky(precision)).T
    except np.linalg.LinAlgError:  # rounding lost its smallest eigenvalues
        values, vectors = np.linalg.eigh(precision)
        lost = len(values) * np.finfo(np.float64).eps * values[-1]
        root = vectors / np.sqrt(np.maximum(values, lost))
        theta = root @ (root.T @ moment)
    prediction = design @ theta
    width = np.empty(len(prediction))
    for block in blocks(len(width)):
        projected = design[block] @ root
        width[block] = np.sqrt(np.einsum("ni,ni->n", projected, projected))
    return prediction, width


@dataclass(slots=True)
class LinearState:
    """Number and sum of the observations of each client, and its row x of the design."""

    count: IntArray
    total: FloatArray
    design: FloatArray = given()

    def normal_equations(self, regularisation: float) -> tuple[FloatArray, FloatArray]:
        """``H = lambda I + sum n_k x_k x_k'`` and ``b = sum x_k (sum of its values)``."""
        seen = np.flatnonzero(self.count)
        x = self.design[seen]
        precision = regularisation * np.eye(x.shape[1]) + (x.T * self.count[seen]) @ x
        return precision, self.total[seen] @ x


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearModel:
    """One ridge regression on the attributes of all clients, as in LinUCB (FedSUV Eq. 4).

    With x a one and the standardised attributes. Without attributes each client has a coordinate
    of its own, ``theta_k = (sum of its values) / (lambda + n_k)``. Only counts and sums of each
    client are kept: H is small, and made from them as fast as predictions are made from it, so
    nothing drifts, and clients who join may change the standardisation.

    Args:
        regularisation: lambda.

    Example:
        >>> model = LinearModel()
        >>> state = model.init(2, None)
        >>> model.observe(state, np.array([1]), np.array([1.0]))
        >>> model.predict(state)
        (array([0. , 0.5]), array([1.        , 0.70710678]))
    """

    regularisation: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.regularisation < np.inf, self, "regularisation", "a number > 0")

    def init(self, num_clients: int, attributes: FloatArray | None) -> LinearState:
        """No client observed yet."""
        design = np.zeros((num_clients, 0))
        if attributes is not None:
            design = np.column_stack([np.ones(num_clients), standardised(attributes)])
        return LinearState(
            count=np.zeros(num_clients, dtype=np.int64), total=np.zeros(num_clients), design=design
        )

    def observe(self, state: LinearState, clients: IntArray, values: FloatArray) -> None:
        """One new value for each of ``clients`` (distinct)."""
        state.count[clients] += 1
        state.total[clients] += values

    def predict(self, state: LinearState) -> tuple[FloatArray, FloatArray]:
        """``theta · x`` and ``||x||_{H^-1}`` of each client."""
        if not state.design.shape[1]:
            precision = self.regularisation + state.count
            return state.total / precision, 1.0 / np.sqrt(precision)
        H, b = state.normal_equations(self.regularisation)
        return _predict(H, b, state.design)
