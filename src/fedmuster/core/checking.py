"""Checks of what a policy chooses, and of what users tell the selector about a round."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, real_numbers
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import DataError, FedmusterWarning, PolicyError
from fedmuster.core.policy import Policy
from fedmuster.core.records import (
    LARGEST_COUNT,
    AskLoss,
    Forecast,
    Problem,
    RoundView,
    Selection,
    Truth,
    is_count,
    is_integer,
    shortened,
)


def cohort_fault(policy: Policy[Any], view: RoundView, selection: Selection) -> str | None:
    """What is wrong with a cohort, by the policy's own ``cohort_rule``."""
    clients = selection.clients
    if selection.round != view.round:
        return f"it chose for round {selection.round} in round {view.round}"
    if not isinstance(clients, np.ndarray) or clients.dtype != np.int64 or clients.ndim != 1:
        return f"it chose {clients!r}; a cohort is a one-dimensional int64 array"
    if np.any(clients[1:] <= clients[:-1]):
        return f"it chose {clients.tolist()}; ids must increase, none twice"
    if clients.size and (clients[0] < 0 or clients[-1] >= len(view.available)):
        return f"it chose {clients.tolist()} of {len(view.available)} clients"
    if not view.available[clients].all():
        away = clients[~view.available[clients]].tolist()
        return f"it chose {away}, who are not available"
    # What budgets pay for may be fewer than m, whatever the policy's rule is without them.
    rule = policy.cohort_rule if view.edges is None else "at most"
    if rule != "everyone" and len(clients) == view.cohort_size:  # no need to count the available
        wanted = view.cohort_size
    else:
        wanted = view.num_available if rule == "everyone" else view.num_to_choose
    enough = len(clients) == wanted or (rule == "at most" and len(clients) <= wanted)
    if not enough:
        return (
            f"it chose {len(clients)} clients when {view.num_available} were available and m was "
            f"{view.cohort_size}; its cohort_rule {rule!r} means {wanted}"
        )
    return _edge_fault(view, selection) or _column_fault(view, selection)


def _edge_fault(view: RoundView, selection: Selection) -> str | None:
    """COCS Eq. 10b to 10d: budgets, coverage, one edge for each client."""
    network, clients, edges = view.edges, selection.clients, selection.edges
    if network is None:
        return None if edges is None else "it assigned edges where there are none"
    if not isinstance(edges, np.ndarray) or edges.dtype != np.int64 or edges.shape != clients.shape:
        return f"its edges are {edges!r}; there must be one, as int64, for each of its clients"
    if edges.size and not (edges.min() >= 0 and edges.max() < network.num_edges):
        return f"its edges are {edges.tolist()}; there are {network.num_edges}, counted from 0"
    reached = network.coverage[clients, edges]
    if not reached.all():
        client, edge = clients[~reached][0], edges[~reached][0]
        return f"it put client {client} at edge {edge}, which does not cover it"
    spent = network.spent(clients, edges)
    if np.any(spent > network.budget):
        edge = int(np.argmax(spent > network.budget))
        return (
            f"its clients cost {float(spent[edge])!r} at edge {edge}, whose budget is "
            f"{float(network.budget[edge])!r}"
        )
    return None


def _column_fault(view: RoundView, selection: Selection) -> str | None:
    inclusion, features = selection.inclusion, selection.features
    if inclusion is not None and (
        inclusion.shape != selection.clients.shape or not np.all((inclusion > 0) & (inclusion <= 1))
    ):
        return f"its inclusion is {inclusion!r}; it must hold a probability > 0 for each client"
    if features is not None and (
        view.features is None or not np.array_equal(features, selection.rows_of(view.features))
    ):
        return "the features in its selection are not those that the view has of the cohort"
    return _closing_fault(selection)


def _closing_fault(selection: Selection) -> str | None:
    size, order = len(selection.clients), selection.order
    quota, preferred = selection.quota, selection.preferred
    closing = [column is not None for column in (order, quota, preferred)]
    deadline = selection.deadline_seconds
    if deadline is not None and not 0 < deadline < np.inf:
        return f"its deadline_seconds is {deadline!r}; it must be a number > 0"
    if selection.edges is not None and any(closing):
        return "it has an order or a quota, which edge servers do not know"
    if order is not None and not np.array_equal(np.sort(order), np.arange(size)):
        return f"its order is {order!r}; it must hold each of the positions 0 … {size - 1} once"
    if quota is not None and not is_integer(quota, least=1):
        return f"its quota is {quota!r}; it must be an integer >= 1"
    if preferred is not None and (
        preferred.dtype != np.bool_ or preferred.shape != selection.clients.shape or quota is None
    ):
        return "its preferred must hold a bool for each client, and needs a quota"
    return None


def checked_view(
    policy: Policy[Any],
    problem: Problem,
    round_number: int,
    *,
    available: ArrayLike | None,
    busy: BoolArray | None,
    cohort_size: int | None,
    features: ArrayLike | None,
    edges: EdgeView | None,
    truth: Truth | None,
    privacy_left: ArrayLike | None,
    ask_loss: AskLoss | None,
    forecast: Forecast | None,
) -> RoundView:
    """What ``policy`` may see of a round; see :meth:`fedmuster.core.selector.Selector.select`."""
    clients = problem.num_clients
    mask = _available(available, busy, clients)
    if edges is not None or problem.num_edges > 0:
        mask = mask & _edges(edges, policy, problem).covered
    size = problem.cohort_size if cohort_size is None else cohort_size
    if not is_count(size, least=1):
        raise DataError(
            f"select: cohort_size is {shortened(size)}, expected an integer from 1 to "
            f"{LARGEST_COUNT:,}"
        )
    if policy.oracle and not isinstance(truth, Truth):
        raise DataError(
            f"select: {policy.name} is an oracle and needs the Truth, which only a simulated "
            f"world knows; got {type(truth).__name__}"
        )
    return RoundView(
        round=round_number,
        cohort_size=int(size),
        available=mask,
        features=_features(features, edges, problem),
        edges=edges,
        truth=truth if policy.oracle else None,
        privacy_left=None if privacy_left is None else _shares(privacy_left, clients),
        ask_loss=None if ask_loss is None else _counted(ask_loss),
        forecast=None if forecast is None else _complete(forecast, clients),
    )


def warn_if_everyone(policy: Policy[Any], problem: Problem) -> None:
    """Say that there is nothing to choose where the cohort size exceeds the number of clients."""
    clients, wanted = problem.num_clients, problem.cohort_size
    if wanted > clients and problem.num_edges == 0 and policy.cohort_rule != "everyone":
        warnings.warn(
            f"cohort_size is {wanted}, but there are {clients} clients: every available client is "
            "selected in every round; write a smaller cohort_size",
            FedmusterWarning,
            stacklevel=3,
        )


def _available(available: ArrayLike | None, busy: BoolArray | None, num_clients: int) -> BoolArray:
    """bool[K], the clients that are available and not busy."""
    if available is None:
        return np.ones(num_clients, dtype=np.bool_) if busy is None else ~busy
    mask = _as_array("available", available)
    if mask.dtype != np.bool_ or mask.shape != (num_clients,):
        raise DataError(
            f"select: available is {mask.dtype}{mask.shape}, expected bool({num_clients},)"
        )
    return mask if busy is None else np.greater(mask, busy)  # one pass; "& ~" would take two


def _edges(edges: EdgeView | None, policy: Policy[Any], problem: Problem) -> EdgeView:
    if not isinstance(edges, EdgeView):
        raise DataError(
            f"select: edges is {type(edges).__name__} and Problem.num_edges {problem.num_edges}: "
            "where there are edge servers, edges must be an EdgeView of coverage, cost and budget"
        )
    if (edges.num_clients, edges.num_edges) != (problem.num_clients, problem.num_edges):
        raise DataError(
            f"select: edges has {edges.num_clients} clients and {edges.num_edges} edges, expected "
            f"{problem.num_clients} and {problem.num_edges} as the Problem says"
        )
    if not policy.assigns_edges:
        raise PolicyError(
            f"policy {policy.name} assigns nobody to edge servers: lift it to them, by "
            f"Lifted(policy={type(policy).__name__}(…)) or, in a spec, by "
            f'{{ name = "lifted", policy = {{ name = "{policy.name}" }} }}'
        )
    return edges


def _features(
    features: ArrayLike | None, edges: EdgeView | None, problem: Problem
) -> FloatArray | None:
    shape: tuple[int, ...] = (problem.num_clients, problem.num_features)
    if edges is not None:
        shape = (problem.num_clients, problem.num_edges, problem.num_features)
    if features is None:
        if problem.num_features == 0:
            return None
        raise DataError(
            f"select: Problem.num_features is {problem.num_features}, so select needs features of "
            f"shape {shape}"
        )
    try:
        context = real_numbers(features)
    except ValueError as error:
        raise DataError(f"select: features must hold real numbers: {error}") from None
    if context.shape != shape:
        raise DataError(
            f"select: features has shape {context.shape}, expected {shape} as "
            f"Problem.num_features{'' if edges is None else ' and num_edges'} says"
        )
    if not np.isfinite(context).all():
        raise DataError("select: features holds NaN or infinite values")
    return context


def _shares(privacy_left: ArrayLike, num_clients: int) -> FloatArray:
    shares = _as_array("privacy_left", privacy_left)
    fits = shares.dtype == np.float64 and shares.shape == (num_clients,)
    # A comparison with NaN is false, so NaN is refused here too.
    if not fits or not (shares.min() >= 0.0 and shares.max() <= 1.0):
        raise DataError(
            f"select: privacy_left is {shares.dtype}{shares.shape}, expected float64"
            f"({num_clients},) with numbers from 0 to 1"
        )
    return shares


def _require_callable(name: str, value: Any) -> None:
    if not callable(value):
        raise DataError(f"select: {name} is {type(value).__name__}, expected a function, or None")


def _as_array(name: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DataError(f"select: {name} is no list of values: {error}") from None


def _counted(ask_loss: AskLoss) -> AskLoss:
    """``ask_loss``, with a check that each asked client gets one answer."""
    _require_callable("ask_loss", ask_loss)

    def ask(clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        told = ask_loss(clients, batch_size=batch_size)
        try:
            answers = real_numbers(told)
        except ValueError as error:
            raise DataError(f"select: ask_loss must return numbers: {error}") from None
        if answers.shape != clients.shape:
            raise DataError(
                f"select: ask_loss returned shape {answers.shape}, expected one loss for each of "
                f"{len(clients)} clients"
            )
        return answers

    return ask


def _complete(forecast: Forecast, num_clients: int) -> Forecast:
    """``forecast``, with a check that there is an answer for every client."""
    _require_callable("forecast", forecast)

    def ask(window_seconds: float) -> tuple[BoolArray, BoolArray]:
        windows = forecast(window_seconds)
        if not isinstance(windows, tuple | list) or len(windows) != 2:
            raise DataError(
                f"select: forecast returned {type(windows).__name__}, expected a pair of "
                f"bool({num_clients},), one for either window"
            )
        soon, later = (_as_array("the answer of forecast", answers) for answers in windows)
        for answers in (soon, later):
            if answers.dtype != np.bool_ or answers.shape != (num_clients,):
                raise DataError(
                    f"select: forecast returned {answers.dtype}{answers.shape}, expected "
                    f"bool({num_clients},) for either window"
                )
        return soon, later

    return ask
