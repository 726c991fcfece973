"""DivFL: a cohort whose updates represent those of all clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedmuster.bandits.failures import Failures
from fedmuster.bandits.similarity import squared_distances
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.explaining.one_by_one import OneByOne
from fedmuster.policies.score_columns import of_some
from fedmuster.solvers.top_k import filled_up, top_k

_LARGEST: Final = 1e15
"""Entries of sketches are clipped to this: larger ones come from a model that diverges, and the
squares of their distances could overflow."""


@dataclass(slots=True)
class UpdateState:
    """[K, q] sketch of each client's last update, whether there is one, whether it answered."""

    sketches: NDArray[np.float32]
    known: BoolArray
    heard: BoolArray
    failures: Failures


@dataclass(frozen=True, slots=True)
class Cover:
    """A cohort that was chosen one by one.

    Args:
        picks: positions of the chosen candidates, in order.
        gains: [n], by how much each candidate lowers the mean distance of all clients to the
            nearest chosen one: a chosen one in its turn, another on top of all chosen. The first
            is compared with the worst single candidate.
    """

    picks: IntArray
    gains: FloatArray


def facility_location(
    apart: FloatArray, count: int, rng: Generator, *, sample: int | None = None
) -> Cover:
    """Greedy maximisation of how well ``count`` candidates represent all clients.

    Args:
        apart: [V, n], the distance of each client to each candidate.
        count: at most n.
        rng: breaks ties, and draws the samples.
        sample: how many candidates, drawn uniformly, each turn looks at; None for all.

    Example:
        >>> line = np.array([0.0, 1.0, 2.0, 2.5, 10.0])
        >>> cover = facility_location(abs(line[:, None] - line), 2, np.random.default_rng(0))
        >>> cover.picks, cover.gains.round(9)  # the middle, then the far one
        (array([2, 4]), array([0.4, 0.4, 4.6, 0.1, 1.6]))
    """
    free, gains = np.ones(apart.shape[1], dtype=np.bool_), np.zeros(apart.shape[1])
    picks = np.empty(count, dtype=np.int64)
    nearest = np.full(len(apart), np.inf)
    cost = scale = float(apart.mean(axis=0).max(initial=0.0))
    for turn in range(count):
        looked = np.flatnonzero(free)
        if sample is not None and sample < len(looked):
            looked = np.sort(rng.choice(looked, sample, replace=False, shuffle=False))
            costs = _mean_distances(apart[:, looked], nearest)
        else:
            costs = _mean_distances(apart, nearest)[looked]
        # Two clients that are nearest to each other tie, whatever rounding says.
        pick = int(looked[top_k(-np.round(costs / (scale or 1.0), 7), 1, rng)[0]])
        np.minimum(nearest, apart[:, pick], out=nearest)
        gains[pick], cost = cost - nearest.mean(), float(nearest.mean())
        picks[turn], free[pick] = pick, False
    gains[free] = cost - _mean_distances(apart, nearest)[free]
    return Cover(picks, gains)


def _mean_distances(apart: FloatArray, nearest: FloatArray) -> FloatArray:
    """[n], the mean distance to the nearest chosen one, were each candidate chosen, too."""
    return np.asarray(np.minimum(apart, nearest[:, np.newaxis]).mean(axis=0))


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class DivFL(PolicyTraits):
    """The cohort whose last updates are nearest to those of all clients: diverse, none twice.

    The mean over a cohort S approximates the mean over all clients with an error of at most
    ``G(S) = sum_k min over i in S of |g_k - g_i|``, where ``g_k`` is the update of client k: each
    client is represented by the nearest chosen one. Minimising G is facility location. Its
    complement is monotone and submodular, so choosing one client after the other, each time the one
    that lowers G most, comes within 1 - 1/e of the best improvement.

    It needs rounds: one by one, the most central client would be asked again and again. A round
    costs ``n^2 (q + m)`` time and ``8 n^2`` bytes for n clients that are compared, at most
    ``compare_up_to``: 32 MB for 2,000. Without a model, clients are drawn at random.

    Args:
        sketch_size: q, how many numbers are kept of each update. Distances between updates come out
            with an error of about 1/sqrt(2 q).
        sample: how many candidates, drawn uniformly, each turn looks at (stochastic greedy);
            None for all. Authors' code: a tenth of the clients, at least m.
        compare_up_to: at most how many clients are compared in a round. If there are more, this
            number is drawn uniformly to be represented, and another to be chosen from.

    State:
        Of each client a sketch of its last update, whether it has answered, and its failures.

    Deviations:
        1. Updates are compared by their sketches, and after local training. The paper compares
           gradients; its version without overhead keeps the last ones of each client, as here.
        2. The paper asks all clients for their gradients in the first round. Here a client that has
           never answered comes first, in random order, so this takes K/m rounds; until then the
           cohort represents the clients that have answered.
        3. The paper weighs the chosen by the number of clients that they represent; its authors'
           code does not, and neither does this policy.
        4. The authors' lazy greedy algorithm accepts a candidate whose outdated gain equals that of
           the next; this one computes every gain, and draws among equals.
        5. A client that fails f times in a row rests for ``2^f - 1`` rounds: the paper's clients do
           not fail.

    References:
        R. Balakrishnan, T. Li, T. Zhou, N. Himayat, V. Smith, J. Bilmes, Diverse Client Selection
        for Federated Learning via Submodular Maximization, ICLR 2022. Stochastic greedy: B.
        Mirzasoleiman et al., Lazier Than Lazy Greedy, AAAI 2015.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> selector = Selector(DivFL(sketch_size=2), Problem(num_clients=5, cohort_size=5))
        >>> selector.observe(Feedback(
        ...     round=1,
        ...     clients=selector.select().clients,
        ...     latency_seconds=np.ones(5),
        ...     sketches=np.array([[1.0, 0.0], [1.1, 0.0], [1.2, 0.0], [0.0, 2.0], [0.0, 2.3]]),
        ... )).accepted
        5
        >>> selector.select(cohort_size=2).clients  # the middle of the three, one of the two
        array([1, 3])
    """

    name: ClassVar[str] = "divfl"
    rounds_only: ClassVar[str | None] = (
        "a cohort represents all clients as a whole; chosen one by one, the most central client "
        "would be asked again and again"
    )
    terms: ClassVar[Mapping[str, str]] = {
        "gain": "by how much it brings the cohort's updates nearer to those of all clients, in its "
        "turn or on top of the cohort",
        "turn": "the turn in which it is chosen",
    }

    sketch_size: int = 128
    sample: int | None = None
    compare_up_to: int = 2000

    def __post_init__(self) -> None:
        check_types(self)
        require(1 <= self.sketch_size <= 1 << 16, self, "sketch_size", "an integer in 1 … 65536")
        require(self.sample is None or self.sample >= 1, self, "sample", "an integer >= 1")
        require(self.compare_up_to >= 1, self, "compare_up_to", "an integer >= 1")

    @property
    def wanted_sketch_size(self) -> int:
        """The length of the sketches."""
        return self.sketch_size

    def init(self, problem: Problem) -> UpdateState:
        """Nobody heard from yet."""
        clients = problem.num_clients
        return UpdateState(
            sketches=np.zeros((clients, self.sketch_size), dtype=np.float32),
            known=np.zeros(clients, dtype=np.bool_),
            heard=np.zeros(clients, dtype=np.bool_),
            failures=Failures.none(clients),
        )

    def select(self, state: UpdateState, view: RoundView, rng: Generator) -> Selection:
        """Clients never heard from, then one by one; those that failed lately fill up."""
        fit = view.available & ~state.failures.resting(view.round)
        new = np.flatnonzero(fit & ~state.heard)
        count = min(view.num_to_choose, len(new))
        chosen = new[top_k(np.zeros(len(new)), count, rng)]
        candidates = self._some(np.flatnonzero(fit & state.known), view.num_to_choose, rng)
        count = min(view.num_to_choose - count, len(candidates))
        if count > 0:
            cover = self._cover(state, candidates, count, rng)
            chosen = np.concatenate([chosen, candidates[cover.picks]])
        return filled_up(view, chosen, fit, rng)

    def observe(self, state: UpdateState, selection: Selection, feedback: Feedback) -> None:
        """Remember the updates."""
        state.failures.observe(feedback)
        heard = feedback.clients[feedback.answered]
        state.heard[heard] = True
        if feedback.sketches is not None:
            sketches = feedback.sketches[feedback.answered]
            state.sketches[heard] = np.clip(sketches, -_LARGEST, _LARGEST)
            state.known[heard] = True

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return OneByOne(
            formula="clients that have never answered come first; then one by one the client that "
            "brings the cohort's updates nearest to those of all clients"
        )

    def scores(self, state: UpdateState, view: RoundView) -> Mapping[str, FloatArray]:
        """Gain and turn of each client whose update is known, unless they are too many."""
        fit = view.available & ~state.failures.resting(view.round)
        missing = view.num_to_choose - int(np.count_nonzero(fit & ~state.heard))
        candidates, num_clients = np.flatnonzero(fit & state.known), len(fit)
        few = np.count_nonzero(state.known) <= self.compare_up_to
        gain, turn = np.full((2, len(candidates)), np.nan)
        if min(missing, len(candidates)) > 0 and few and self.sample is None:
            count = min(missing, len(candidates))
            cover = self._cover(state, candidates, count, stream(0, POLICY, view.round))
            gain, turn[cover.picks] = cover.gains, 1.0 + np.arange(count)
        return of_some(candidates, num_clients, gain=gain, turn=turn)

    def _cover(self, state: UpdateState, candidates: IntArray, count: int, rng: Generator) -> Cover:
        everybody = state.sketches[self._some(np.flatnonzero(state.known), 0, rng)]
        middle = everybody.mean(axis=0, dtype=np.float64)  # what all have in common only rounds
        apart = np.sqrt(squared_distances(everybody - middle, state.sketches[candidates] - middle))
        return facility_location(apart, count, rng, sample=self.sample)

    def _some(self, clients: IntArray, least: int, rng: Generator) -> IntArray:
        """At most ``compare_up_to`` (or ``least``) of ``clients``, drawn uniformly."""
        most = max(self.compare_up_to, least)
        if len(clients) <= most:
            return clients
        return np.sort(rng.choice(clients, most, replace=False, shuffle=False))
