"""FedSUV: clients that may be Pareto-optimal in validity and utility."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.linear import LinearModel, LinearState
from fedmuster.bandits.means import utility_radius, validity_radius
from fedmuster.bandits.utility import gained_utility
from fedmuster.core.arrays import FloatArray, IntArray, ceil_of
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.state import given
from fedmuster.policies.fedsuv import candidates as box
from fedmuster.policies.fedsuv.candidates import CandidateState, drop_dominated, eliminate, everyone
from fedmuster.policies.fedsuv.explain import UncertainAndUseful
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess, GPState
from fedmuster.solvers.top_k import top_k


@dataclass(slots=True)
class FedSUVState:
    """Both models, the boxes, the candidates, and of how many clients one is to be explored."""

    validity: LinearState
    utility: GPState
    boxes: box.BoxState
    candidates: CandidateState
    num_samples: FloatArray = given()
    cohort_size: IntArray = given()
    explored_of: IntArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedSUV(PolicyTraits):
    """The least-known candidate, and the candidates with the highest possible utility.

    A linear model of attributes bounds validity, the probability of an answer in time:
    ``theta · x ± alpha ||x||_{H^-1}`` (Eq. 4). A Gaussian process bounds utility, ``|B|`` times
    root mean square loss times gain in accuracy (Eq. 3): ``mu ± beta_t^½ sigma`` (Eq. 5). What
    all rounds so far agree on is a client's box R_t (Eq. 8). All are candidates at first; those
    leave for good whose validity is certainly below another's (Eq. 7), while a share 1 - rho of
    all remains, and those whose box another's dominates, while a cohort remains. A round asks the
    candidate of the largest diagonal (Eq. 10, 11) and the m-1 of the highest upper utility.

    Args:
        delta: the bounds fail with at most this probability. Paper: not said.
        rho: the largest share of clients to eliminate for validity. Paper: 0.4.
        regularisation: lambda of the linear model, where H = lambda I at first.
        gp: the Gaussian process of utility.
        use_data_size: whether log(1 + number of samples), where known, joins the attributes.
            Without attributes every client is known by its own history alone.

    State:
        Both models; of each client its box, and since when and why it is no candidate.

    Deviations:
        1. In round 1, and for clients that have just joined (who are candidates), the box is still
           R_0, the whole plane, and chance decides.
        2. Eliminating stops at its floor within a round, lowest upper validity first; of the
           dominated, the lowest upper utility goes first. Those tied at such a floor all stay.
        3. With too few candidates available, others fill the cohort, highest upper utility first.
        4. A diagonal adds utility to a probability; utility counts in units of the largest 90 %
           quantile of any round, and is cut off at ten of them. Validity is not clipped to [0, 1],
           which a linear model leaves: boxes would collapse there and pass for certain.
        5. A side of a box that would become empty starts anew from Q_t.
        6. x is an intercept and standardised columns, log(1 + number of samples) among them. Kernel
           parameters are fitted under a log-normal prior. Nothing is forgotten.
        7. Where clients send no gain in accuracy (a private run), it counts as 1 in Eq. 3.
        8. Without rounds, as many clients as a cohort has make up a round. Where fewer than m are
           chosen at once, the largest diagonal is asked for every m-th client heard of, and the
           others are the highest upper utilities. Where m is everybody, as at edge servers whose
           budgets decide, each choice asks the largest diagonal. t in Eq. 5 counts the clients
           heard of, because its bounds are to hold after each of them. The quantile of 4 is that
           of all clients heard of, each by its mean utility.
        9. By the published rule 10 silent clients of 100 take 87 % of the places for
           hundreds of rounds. Behind a Selector a silent client rests after 5 jobs in a row without
           an answer (fedmuster.core.liveness); rest_after = 0 is the published rule.

    References:
        FedSUV: Validity and Utility-Guided Client Selection for Federated Learning.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(FedSUV(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "fedsuv"
    terms: ClassVar[Mapping[str, str]] = {
        "validity_low": "the chance that it answers in time is at least this",
        "validity_high": "… and at most this",
        "utility_low": "what its answer is worth is at least this",
        "utility_high": "… and at most this",
        "diagonal": "how much is left to learn of it",
        "left_round": "since when it is no candidate any more",
        "left_by": "why: 1 another is surely more valid, 2 another surely dominates it",
    }
    wants_gain: ClassVar[bool] = True

    delta: float = 0.1
    rho: float = 0.4
    regularisation: float = 1.0
    gp: GaussianProcess = field(default_factory=GaussianProcess)
    use_data_size: bool = True

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.delta < 1, self, "delta", "a number in (0, 1)")
        require(0 <= self.rho <= 1, self, "rho", "a number in [0, 1]")
        require(0 < self.regularisation < np.inf, self, "regularisation", "a number > 0")

    @property
    def _linear(self) -> LinearModel:
        return LinearModel(regularisation=self.regularisation)

    def init(self, problem: Problem) -> FedSUVState:
        """Nothing known of anybody; all are candidates."""
        K, attributes, samples = problem.num_clients, problem.attributes, problem.num_samples
        if self.use_data_size and attributes is not None and samples is not None:
            attributes = np.column_stack([attributes, np.log1p(samples)])
        return FedSUVState(
            validity=self._linear.init(K, attributes),
            utility=self.gp.init(K, attributes),
            boxes=box.whole_plane(K),
            candidates=everyone(K),
            num_samples=np.array(1.0) if samples is None else samples.astype(np.float64),
            cohort_size=np.array(problem.cohort_size),
            explored_of=np.array(problem.cohort_size if problem.cohort_size < K else 1),
        )

    def select(self, state: FedSUVState, view: RoundView, rng: Generator) -> Selection:
        """The most uncertain candidate, then the highest upper utilities."""
        candidate = state.candidates.left_by == 0
        inside, outside = (np.flatnonzero(view.available & c) for c in (candidate, ~candidate))
        # In a whole cohort always; of fewer than m clients, one for every m-th client heard of.
        due = int(state.validity.count.sum()) % int(state.explored_of) < view.cohort_size
        explored = min(1, len(inside)) if due else 0
        widest = top_k(box.diagonals(state.boxes, inside), explored, rng)  # Eq. 11
        chosen = [inside[widest]]
        for pool in (np.delete(inside, widest), outside):
            count = min(view.num_to_choose - sum(map(len, chosen)), len(pool))
            chosen.append(pool[top_k(state.boxes.utility_high[pool], count, rng)])
        return Selection.of(view, slice(None), np.concatenate(chosen))

    def observe(self, state: FedSUVState, selection: Selection, feedback: Feedback) -> None:
        """Learn who answered and what it was worth; narrow the boxes, and drop candidates."""
        self._learn(state, selection, feedback)
        t, K, m = feedback.round + 1, len(state.boxes.utility_low), int(state.cohort_size)
        expected, width = self._linear.predict(state.validity)
        validity = box.interval(expected, validity_radius(self.delta) * width)  # Eq. 4
        mean, sd = self.gp.posterior(state.utility)
        # One of infinitely many posteriors: one a round, or one for each client heard of.
        number = t if selection.tickets is None else 1 + int(state.validity.count.sum())
        utility = box.interval(mean, utility_radius(K, number, self.delta) * sd)  # Eq. 5
        floor = max(m, ceil_of((1.0 - self.rho) * K))  # 0.3 · 10 is 3, not 3 + 4e-16
        eliminate(state.candidates, validity, round_=t, floor=floor)  # Eq. 7
        box.intersect(state.boxes, validity, utility)  # Eq. 8
        drop_dominated(state.candidates, state.boxes, round_=t, floor=m)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return UncertainAndUseful()

    def scores(self, state: FedSUVState, view: RoundView) -> Mapping[str, FloatArray]:
        """The boxes, their diagonals, and since when and why somebody is no candidate."""
        return {**box.describe(state.boxes), **state.candidates.columns()}

    def _learn(self, state: FedSUVState, selection: Selection, feedback: Feedback) -> None:
        """Every asked client updates validity; every client that answered updates utility."""
        asked = selection.clients
        answered = np.isin(asked, feedback.clients[feedback.answered], kind="sort")
        self._linear.observe(state.validity, asked, answered.astype(np.float64))
        utility = gained_utility(feedback, of_rows(state.num_samples, feedback.clients))  # Eq. 3
        heard = np.isfinite(utility)
        clients, utility = feedback.clients[heard], utility[heard]
        among = utility
        if selection.tickets is not None and len(clients) > 0:  # one value has no quantiles
            tally = state.utility.tally
            others = np.setdiff1d(np.flatnonzero(tally.count), clients)
            among = np.concatenate([utility, tally.mean[others]])
        box.raise_scale(state.boxes, among)
        worth = box.clipped(utility, float(state.boxes.utility_scale))
        self.gp.observe(state.utility, clients, worth)
