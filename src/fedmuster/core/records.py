"""The records that everything speaks: Problem, RoundView, Selection, Feedback.

They are frozen dataclasses of numpy arrays. A client is its index 0 … K-1; every per-client
array has the clients on axis 0. Rounds count from 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Protocol, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmuster.core.arrays import BoolArray as BoolArray
from fedmuster.core.arrays import FloatArray as FloatArray
from fedmuster.core.arrays import IntArray as IntArray
from fedmuster.core.arrays import real_numbers
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import DataError


class AskLoss(Protocol):
    """Asks clients how well the global model does on their data, where there is a model.

    Pure: repeats for the same arguments. What asking costs is the federation's matter.
    """

    def __call__(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        """[n], the mean loss over all samples of each client, or over ``batch_size`` of them.

        What a client answers need not be finite, nor true.
        """


class Forecast(Protocol):
    """Asks clients when they expect to be available. Pure."""

    def __call__(self, window_seconds: float) -> tuple[BoolArray, BoolArray]:
        """bool[K] each: clients that expect to be available for the next ``window_seconds``, and
        for as long after that. The expectation may be wrong."""


PER_CLIENT: Final = ("num_samples", "quality", "clusters", "attributes", "expected_seconds")
"""The arrays of a :class:`Problem`."""
_MAY_BE_0: Final = ("num_features", "num_edges", "num_classes")
COUNTS: Final = ("num_clients", "cohort_size", *_MAY_BE_0, "first_round")
"""The numbers of a :class:`Problem`."""

LARGEST_COUNT: Final = 10**9
"""Of clients, places, edges, …: more than a server can hold."""
SHORTEST_SECONDS = 1e-9
LONGEST_SECONDS = 1e9
"""Latencies outside of 1 ns … 30 years are refused: their inverse could overflow."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Problem:
    """What the server knows for the whole run.

    Args:
        num_clients: K.
        cohort_size: m, how many clients a round may use.
        num_samples: data set size of each client, ``|X_k|``; None when all are alike.
        quality: data quality of each client in [0, 1], ``q_k``; None when all are alike.
        clusters: a label >= 0 for each client, where clients share an access point, subnet or
            region; None when they do not.
        num_features: d, how many numbers describe each client in a round (``RoundView.features``).
        num_edges: M, how many edge servers there are; 0 for none, in flat federated learning.
        num_classes: C, how many classes the model tells apart, where a policy must know it; 0 where
            it is not known.
        attributes: [K, d'], numbers that describe each client for the whole run (compute, cores,
            memory, …); None when nothing is known.
        expected_seconds: how long device and link of each client suggest that a round takes; None
            when nothing is known.
        first_round: the first round in which the newest clients can be chosen.
    """

    num_clients: int
    cohort_size: int
    num_samples: IntArray | None = None
    quality: FloatArray | None = None
    clusters: IntArray | None = None
    num_features: int = 0
    num_edges: int = 0
    num_classes: int = 0
    attributes: FloatArray | None = None
    expected_seconds: FloatArray | None = None
    first_round: int = 1

    def __post_init__(self) -> None:
        for name in COUNTS:
            least = 0 if name in _MAY_BE_0 else 1
            value = getattr(self, name)
            if not is_count(value, least=least):
                raise DataError(
                    f"Problem: {name} is {shortened(value)}, expected an integer from {least} to "
                    f"{LARGEST_COUNT:,}"
                )
        self._check("num_samples", np.integer, "integers >= 0", low=0)
        self._check("quality", np.floating, "numbers in [0, 1]", low=0, high=1)
        self._check("clusters", np.integer, "labels >= 0", low=0)
        seconds = f"numbers in [{SHORTEST_SECONDS:g}, {LONGEST_SECONDS:g}]"
        self._check(
            "expected_seconds", np.floating, seconds, low=SHORTEST_SECONDS, high=LONGEST_SECONDS
        )
        self._check_attributes()
        weights = self.data_weights()
        if weights is not None and not weights.any():
            raise DataError(
                "Problem: num_samples or quality is 0 for every client: no data are worth anything"
            )

    def _check(
        self, name: str, kind: type, expected: str, low: float, high: float = np.inf
    ) -> None:
        value = getattr(self, name)
        if value is None:
            return
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise DataError(f"Problem: {name} must hold {expected}: {error}") from None
        if array.shape != (self.num_clients,):
            raise DataError(
                f"Problem: {name} has shape {array.shape}, expected one value for each of "
                f"{self.num_clients} clients"
            )
        if np.issubdtype(array.dtype, np.integer) and kind is np.floating:
            array = array.astype(np.float64)
        # A comparison with NaN is false, so NaN is refused here too.
        if not np.issubdtype(array.dtype, kind) or not np.all((array >= low) & (array <= high)):
            raise DataError(f"Problem: {name} must hold {expected}; got {array!r}")
        wide = np.int64 if kind is np.integer else np.float64
        object.__setattr__(self, name, array.astype(wide))

    def _check_attributes(self) -> None:
        if self.attributes is None:
            return
        try:
            array = real_numbers(self.attributes)
        except ValueError as error:
            raise DataError(f"Problem: attributes must hold numbers: {error}") from None
        if array.ndim != 2 or len(array) != self.num_clients or not np.isfinite(array).all():
            raise DataError(
                f"Problem: attributes is {array.dtype}{array.shape}, expected finite numbers of "
                f"shape ({self.num_clients}, d): a row for each client"
            )
        object.__setattr__(self, "attributes", array.copy())

    @property
    def num_servers(self) -> int:
        """Where clients can train: at M edge servers, or at the one server of flat learning."""
        return max(self.num_edges, 1)

    def data_weights(self) -> FloatArray | None:
        """``d_k = q_k |X_k|`` (BSFL Eq. 4), or None when all clients count alike."""
        if self.num_samples is None and self.quality is None:
            return None
        size = np.ones(self.num_clients) if self.num_samples is None else self.num_samples
        return np.asarray(size * (1.0 if self.quality is None else self.quality), dtype=np.float64)

    def target_share(self) -> FloatArray:
        """The share of rounds each client should join, ``m d_k / sum d`` (BSFL Eq. 3, 4).

        0-d when all clients count alike, so that nobody reads a million equal numbers.
        """
        weights = self.data_weights()
        if weights is None:
            return np.asarray(self.cohort_size / self.num_clients)  # BSFL Eq. 3
        share: FloatArray = self.cohort_size * weights / weights.sum()  # BSFL Eq. 4
        return share

    def grown(
        self, count: int, *, first_round: int, joining: Mapping[str, ArrayLike | None]
    ) -> "Problem":
        """The problem after ``count`` clients joined, at the end of every :data:`PER_CLIENT` array.

        Args:
            count: how many clients join.
            first_round: the first round in which these clients can be chosen.
            joining: the rows of the joining clients, by the name of the array.
        """
        extended: dict[str, Any] = {}
        for name in PER_CLIENT:
            old, new = getattr(self, name), joining.get(name)
            if (old is None) != (new is None):
                raise DataError(
                    f"Problem: {name} must be given for joining clients exactly when the others "
                    f"have it (they {'do not' if old is None else 'do'})"
                )
            if old is not None and new is not None:
                rows = _rows_like(old, new, name)
                if rows.shape != (count, *old.shape[1:]):
                    raise DataError(
                        f"Problem: {name} has shape {rows.shape}, expected "
                        f"{(count, *old.shape[1:])} for {count} joining clients"
                    )
                extended[name] = np.concatenate([old, rows])
        return replace(
            self, num_clients=self.num_clients + count, first_round=first_round, **extended
        )


def _rows_like(old: NDArray[Any], new: ArrayLike, name: str) -> NDArray[Any]:
    """The rows of joining clients, of a type that the rows of the others can be joined with."""
    try:
        rows = np.asarray(new)
        if rows.dtype.kind not in "biuf":
            raise ValueError(f"it is of type {rows.dtype}")
    except ValueError as error:
        expected = "integers" if old.dtype.kind == "i" else "numbers"
        raise DataError(f"Problem: {name} must hold {expected}: {error}") from None
    return rows


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Truth:
    """The round's true expectations, which only oracles (Genie, Oracle, fastest) see."""

    mean_latency_seconds: FloatArray
    mean_speed: FloatArray
    """``mu_k = E[tau_min / tau_k]``, in [0, 1]."""
    success: FloatArray | None = None
    """[K, M], the probability of an answer in time at each edge, given what the operator sees
    (COCS: ``p_{n,m}``); None where there are no edges."""
    succeeds: BoolArray | None = None
    """[K, M], whether it will come in time, this time; None where there are no edges."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RoundView:
    """All that a server may know before it chooses.

    Args:
        round: t = 1, 2, …
        cohort_size: how many clients this round may use.
        available: bool[K], who can be asked now.
        features: [K, d] context of each client, [K, M, d] at each edge where there are edges, or
            None.
        edges: the edge servers; None in flat federated learning.
        truth: given to oracle policies only.
        privacy_left: [K], the share of its privacy budget that each client has left in the
            ledger; None where no ledger is kept.
        ask_loss: asks clients for the loss of the global model; None where there is no model, or
            no asking.
        forecast: asks clients when they expect to be available; None where they do not tell.
    """

    round: int
    cohort_size: int
    available: BoolArray
    features: FloatArray | None = None
    edges: EdgeView | None = None
    truth: Truth | None = None
    privacy_left: FloatArray | None = None
    ask_loss: AskLoss | None = None
    forecast: Forecast | None = None
    _counted: int = field(init=False, default=-1, repr=False)

    @property
    def num_available(self) -> int:
        """How many clients can be asked. They are counted once, and only if it is asked for."""
        if self._counted < 0:
            object.__setattr__(self, "_counted", int(np.count_nonzero(self.available)))
        return self._counted

    @property
    def network(self) -> EdgeView:
        """The edge servers; in flat federated learning one, without a budget."""
        return EdgeView.flat(len(self.available)) if self.edges is None else self.edges

    @property
    def pair_features(self) -> FloatArray | None:
        """[K, M, d], the context of each client at each edge of :attr:`network`."""
        if self.features is None or self.edges is not None:
            return self.features
        return self.features[:, np.newaxis, :]

    @property
    def num_to_choose(self) -> int:
        """``min(m, available)``."""
        return min(self.cohort_size, self.num_available)

    def anybody_can_be_chosen(self) -> bool:
        """Whether somebody is available, and an edge that covers it can pay for it."""
        if self.edges is None:
            return self.num_to_choose > 0
        fits = self.edges.coverage & (self.edges.cost <= self.edges.budget)
        return self.cohort_size > 0 and bool(fits[self.available].any())

    def candidates(self) -> IntArray | slice:
        """The available clients as an index: ``slice(None)`` (no copy) when all of them are."""
        if self.num_available == len(self.available):
            return slice(None)
        return np.flatnonzero(self.available)

    def privacy_of(self, rows: IntArray | slice) -> FloatArray | None:
        """``privacy_left[rows]``, where it is known."""
        return None if self.privacy_left is None else self.privacy_left[rows]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Selection:
    """The cohort of a round.

    Args:
        round: the round it was chosen for.
        clients: int64[m], increasing.
        edges: int64[m], the edge server at which each of them trains; None in flat federated
            learning.
        inclusion: P(chosen) of each of them, where the rule is random and knows it.
        features: [m, d] what the view said of each of them (at its edge), for policies that learn
            from it.
        order: int64[m], positions in ``clients``: ``clients[order]`` is the order in which they
            are to upload, where that matters (MAB-CS); None for whoever is ready first.
        quota: with how many answers of ``preferred`` clients the round closes (SAFA); None to wait
            for everybody, or as the federation has it.
        preferred: bool[m], whose answers count first. If the deadline comes before the quota is
            full, others fill it in order of arrival. None for all alike.
        losses: [K], what clients answered when they were asked for their loss
            (:attr:`RoundView.ask_loss`), for policies that learn from it; infinite for clients that
            were not asked, or answered with no number.
        deadline_seconds: how long the server waits for these clients, where the policy decides it;
            None for as long as the federation waits.
        tickets: int64[m], increasing: the number of each job, where clients are asked while others
            are out. The Selector fills it in.
        wanted: int64[n], increasing: the clients that the policy wanted, where exploration took
            some of their places; None where the cohort is what the policy wanted.
    """

    round: int
    clients: IntArray
    edges: IntArray | None = None
    inclusion: FloatArray | None = None
    features: FloatArray | None = None
    order: IntArray | None = None
    quota: int | None = None
    preferred: BoolArray | None = None
    losses: FloatArray | None = None
    deadline_seconds: float | None = None
    tickets: IntArray | None = None
    wanted: IntArray | None = None

    @classmethod
    def of(cls, view: RoundView, candidates: IntArray | slice, positions: IntArray) -> "Selection":
        """The clients at ``positions`` of ``candidates`` (see :meth:`RoundView.candidates`)."""
        clients = np.sort(positions if isinstance(candidates, slice) else candidates[positions])
        features = None if view.features is None else view.features[clients]
        return cls(round=view.round, clients=clients, features=features)

    @classmethod
    def at_edges(cls, view: RoundView, clients: IntArray, edges: IntArray) -> "Selection":
        """These clients, each at its edge of :attr:`RoundView.network`.

        In flat federated learning, where that network has one edge, :attr:`edges` stays None.
        """
        order = np.argsort(clients)
        clients, edges = clients[order], edges[order]
        context = view.pair_features
        return cls(
            round=view.round,
            clients=clients,
            edges=None if view.edges is None else edges,
            features=None if context is None else context[clients, edges],
        )

    @property
    def edge_of_each(self) -> IntArray:
        """int64[m]: ``edges``, with the one server of flat federated learning spelled out."""
        return np.zeros_like(self.clients) if self.edges is None else self.edges

    def part(self, rows: IntArray) -> "Selection":
        """The part of the cohort at these increasing positions.

        What is about the whole cohort (an order of upload, a quota, who was wanted) is left out.
        """
        told = {name: getattr(self, name) for name in _PER_ROW}
        some = {name: values[rows] for name, values in told.items() if values is not None}
        return replace(self, order=None, quota=None, preferred=None, wanted=None, **some)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every field that is not None, by name, to be saved."""
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: np.asarray(value) for name, value in told.items() if value is not None}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Selection":
        """The inverse of :meth:`arrays`."""
        kinds: dict[str, Any] = {"round": int, "quota": int, "deadline_seconds": float}
        told: dict[str, Any] = {name: kinds.get(name, np.asarray)(a) for name, a in arrays.items()}
        return cls(round=told.pop("round"), **told)

    def rows_of(self, values: FloatArray) -> FloatArray:
        """[m, …], what ``values`` [K, …] say of each of the cohort; [K, M, …] with edges."""
        if self.edges is None:
            return values[self.clients]
        return values[self.clients, self.edges]


_PER_ROW: Final = ("clients", "edges", "inclusion", "features", "tickets")
"""The columns of a :class:`Selection` that mean the same for a part of it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Feedback:
    """What came back from a cohort: any subset of it, in any order.

    Args:
        round: the round that was answered; 0 where ``tickets`` say what was answered.
        clients: int64[n].
        latency_seconds: time from asking to answer, 1e-9 … 1e9; ignored where not completed.
        reported_seconds: how long the clients say they took; NaN for no report. Only a selector
            that checks reports uses it; ``latency_seconds`` is by the server's clock then.
        completed: who answered; None means all of ``clients``.
        signals: whatever else was measured, one float per row ("loss", "accuracy_gain", …). With
            "in_time" an edge server that waited beyond its deadline says whose answer came by it
            (1) and whose did not (0); without, whoever completed was in time.
        sketches: [n, q], a short random projection of each update as the server received it, whose
            angles are nearly those of the updates; for policies that want it
            (``wanted_sketch_size``).
        output_bias: [n, C], by how much each update as the server received it changes the biases
            of the output layer, one for each class; for policies that want it
            (``wants_output_bias``), where the model has such a layer.
        used: which of the completed answers enter the round's model; None for all of them.
        round_seconds: how long the round took, on the server's clock; None if nobody looked.
        tickets: int64[n], the ticket that each row answers, where clients are asked while others
            are out (:attr:`Selection.tickets`); the rows may belong to several selections.
        late: what became of invitations to earlier rounds, in rounds that close before all have
            answered; for policies that want it (``hears_late``). A row is a client that was told
            as not completed then: ``completed`` says whether its answer has come since, with its
            ``signals`` and with ``latency_seconds`` from asking to arrival, or whether the answer
            is lost or will never come. Each invitation is in at most one ``late``. Without rows if
            there is no news; None where nobody waits for late answers, so that clients that did
            not complete are given up with their round.
    """

    round: int = 0
    clients: IntArray
    latency_seconds: FloatArray
    completed: BoolArray | None = None
    signals: Mapping[str, FloatArray] = field(default_factory=dict)
    sketches: FloatArray | None = None
    output_bias: FloatArray | None = None
    used: BoolArray | None = None
    round_seconds: float | None = None
    tickets: IntArray | None = None
    late: "Feedback | None" = None
    reported_seconds: FloatArray | None = None

    @property
    def answered(self) -> BoolArray:
        """bool[n]: ``completed``, with None spelled out."""
        if self.completed is None:
            return np.ones(len(self.clients), dtype=np.bool_)
        return self.completed

    @property
    def entered(self) -> BoolArray:
        """bool[n]: whose answers enter the round's model."""
        return self.answered if self.used is None else self.answered & self.used

    @property
    def lasted_seconds(self) -> float:
        """How long the round took: by the server's clock, or else until the slowest answer."""
        if self.round_seconds is not None:
            return self.round_seconds
        return float(self.latency_seconds[self.answered].max(initial=0.0))


def is_integer(value: object, *, least: int) -> TypeGuard[int | np.integer[Any]]:
    """Whether ``value`` is an integer (of Python or numpy, but no bool) and >= ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return int(value) >= least


def is_count(value: object, *, least: int) -> TypeGuard[int | np.integer[Any]]:
    """Whether ``value`` is an integer that can count clients, places and the like."""
    return is_integer(value, least=least) and bool(value <= LARGEST_COUNT)


def shortened(value: object) -> str:
    """The value for a message; Python refuses to write an integer of thousands of digits."""
    if isinstance(value, int) and abs(value) > 10**30:
        return f"an integer of {value.bit_length():,} bits"
    return repr(value)


def checked_seed(seed: object, *, owner: str) -> int:
    """The seed that ``owner`` was given, if it is one."""
    if not is_integer(seed, least=0):
        raise DataError(f"{owner}: seed is {seed!r}, expected an integer >= 0")
    return int(seed)


def of_rows(values: FloatArray, rows: IntArray | slice) -> FloatArray:
    """``values[rows]``, where a 0-d array stands for the same value for all clients."""
    return values if values.ndim == 0 else values[rows]
