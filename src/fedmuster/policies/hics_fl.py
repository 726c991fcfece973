"""HiCS-FL: prefers groups of clients whose labels seem balanced, by the output layer's biases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.failures import Failures
from fedmuster.bandits.similarity import WardTree, angles, unit_rows
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.state import given
from fedmuster.core.words import number, percent, several
from fedmuster.policies.score_columns import of_some
from fedmuster.solvers.top_k import filled_up, top_k, weighted_draw

_USUAL_RATIO: Final = 14.0
"""The largest change of a bias over the temperature. In the paper's runs on Fashion-MNIST, 38 steps
of 0.001 move the bias of a client's only class by about 0.034, and the temperature is 0.0025."""


@dataclass(slots=True)
class BiasState:
    """Of each client the last change of the output biases [K, C], and whether it ever answered.

    ``samples`` are its data (0-d where all have alike), ``cohort_size`` is m, both given.
    """

    bias: FloatArray
    heard: BoolArray
    failures: Failures
    samples: FloatArray = given()
    cohort_size: IntArray = given()


def entropies(bias: FloatArray, temperature: float) -> FloatArray:
    """[n], ``H(softmax(bias / T))`` of each row: how balanced the labels of a client seem (Eq. 7).

    Example:
        >>> entropies(np.array([[0.0, 0.0], [0.0, np.log(3.0)]]), 1.0).round(4)
        array([0.6931, 0.5623])
    """
    scaled = bias / temperature
    scaled -= scaled.max(axis=1, keepdims=True)  # so that no exponential overflows
    share = np.exp(scaled)
    total = share.sum(axis=1)
    entropy: FloatArray = np.log(total) - (scaled * share).sum(axis=1) / total
    return entropy


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class HiCSFL(PolicyTraits):
    """Clients of clusters whose labels seem balanced, by what they do to the output layer's biases.

    A client with few classes raises their biases and lowers the others'. Its labels' entropy is
    estimated by ``H_k = H(softmax(db_k / T))`` (Eq. 7), where ``db_k`` is the change of the C
    biases in its last update. Clients at a distance of ``angle(db_u, db_k) + lambda |H_u - H_k|``
    (Eq. 9) are put into M clusters by Ward's method. A client is drawn by drawing a cluster with
    probability in proportion to ``exp(gamma_t mean H)`` and then one of its clients in proportion
    to its data (Eq. 10), until m different ones are drawn. ``gamma_t = gamma (1 - t / rounds)``:
    at first balanced clients are preferred, at last clusters count alike.

    Every client is asked once before that (Algorithm 1), which takes K/m rounds. A round costs
    ``n^2`` time and memory for n clients that are clustered, at most ``cluster_up_to``: 2,000
    take 32 MB. Needs scipy. Without a model, or where Flower's arrays do not end in an output
    layer, nothing is known of labels, and clients are drawn by their data.

    Args:
        temperature: T. Paper: 0.0025 on Fashion-MNIST and 0.0015 on CIFAR-10, for steps of 0.001.
            It must fit the size of updates; None for 1/14 of the largest change of a bias that is
            known, which is about the paper's on Fashion-MNIST.
        entropy_weight: lambda. Paper: 10.
        num_clusters: M; None for m, as in the paper.
        gamma: how much balanced labels count at first. Paper: 4; 2 on Mini-ImageNet.
        annealing_rounds: after how many rounds they no longer do. Paper: 200, 500, 100, the length
            of its runs.
        keep_first: whether a client's first answer counts, in place of its last.
        cluster_up_to: at most how many clients are clustered in a round; if there are more, this
            number is drawn uniformly, and the others are not chosen in this round.

    State:
        Of each client the change of the biases, whether it has answered, and its failures.

    Deviations:
        1. The paper's temperature is a number for its step sizes. With larger steps it takes every
           client but the perfectly balanced for one of a single class.
        2. As the model learns, biases change less (Eq. 6), and a client of one class that was heard
           late seems more balanced than one that was heard early. The authors' code keeps the
           estimates of the first rounds where data are mixed (``keep_first``); the paper does not.
        3. A client whose biases did not change at all would seem perfectly balanced. It counts with
           the mean entropy of the others.
        4. Ward's method gets the distances of Eq. 9. The authors' code hands their square matrix
           over as points, takes angles of all weights of the output layer, and entropies of their
           means by class. Where entropies vary by more than 0.1, it switches to clustered sampling;
           else it draws uniformly within a cluster. The paper says none of that.
        5. Clients that have not answered come first also later, so that those that join are heard
           from; the authors' code takes the first clients in the order of their numbers. A client
           that fails f times in a row rests for ``2^f - 1`` rounds.
        6. After ``annealing_rounds`` gamma stays 0; the formula would prefer unbalanced clients.
        7. The paper averages with weights 1/m, because data count in the draw. Write
           ``training.server = { name = "fedavg", weights = "uniform" }``.

    References:
        H. Chen, H. Vikalo, Heterogeneity-Guided Client Sampling: Towards Fast and Efficient
        Non-IID Federated Learning, NeurIPS 2024, arXiv:2310.00198.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=4, cohort_size=4, num_classes=2)
        >>> selector = Selector(HiCSFL(temperature=0.1), problem)
        >>> selector.observe(Feedback(
        ...     round=1,
        ...     clients=selector.select().clients,
        ...     latency_seconds=np.ones(4),
        ...     output_bias=np.array([[0.2, -0.2], [0.01, -0.01], [0.21, -0.21], [-0.2, 0.2]]),
        ... )).accepted
        4
        >>> cohort = selector.select(cohort_size=1)
        >>> selector.scores()["entropy"].round(2)  # client 1 has as much of both classes
        array([0.09, 0.69, 0.08, 0.09])
    """

    name: ClassVar[str] = "hics-fl"
    wants_output_bias: ClassVar[bool] = True
    terms: ClassVar[Mapping[str, str]] = {
        "entropy": "how balanced its labels seem: 0 for one class, ln C for all alike",
        "cluster": "the number of its cluster in this round",
        "chance": "how likely a single draw takes it",
    }

    temperature: float | None = None
    entropy_weight: float = 10.0
    num_clusters: int | None = None
    gamma: float = 4.0
    annealing_rounds: int = 200
    keep_first: bool = False
    cluster_up_to: int = 2000

    def __post_init__(self) -> None:
        check_types(self)
        given_ = self.temperature
        require(given_ is None or 0 < given_ < np.inf, self, "temperature", "a number > 0")
        for name in ("entropy_weight", "gamma"):
            require(0 <= getattr(self, name) < np.inf, self, name, "a number >= 0")
        clusters = self.num_clusters
        require(clusters is None or clusters >= 1, self, "num_clusters", "an integer >= 1")
        require(self.annealing_rounds >= 1, self, "annealing_rounds", "an integer >= 1")
        require(self.cluster_up_to >= 1, self, "cluster_up_to", "an integer >= 1")

    def init(self, problem: Problem) -> BiasState:
        """Nobody heard from yet."""
        clients, samples = problem.num_clients, problem.num_samples
        return BiasState(
            bias=np.zeros((clients, problem.num_classes)),
            heard=np.zeros(clients, dtype=np.bool_),
            failures=Failures.none(clients),
            samples=np.array(1.0) if samples is None else samples.astype(np.float64),
            cohort_size=np.array(problem.cohort_size),
        )

    def select(self, state: BiasState, view: RoundView, rng: Generator) -> Selection:
        """Clients never heard from, then by clusters; those that failed lately fill up."""
        fit = view.available & ~state.failures.resting(view.round)
        new, known = np.flatnonzero(fit & ~state.heard), np.flatnonzero(fit & state.heard)
        count = min(view.num_to_choose, len(new))
        chosen = new[top_k(np.zeros(len(new)), count, rng)]
        missing = view.num_to_choose - count
        if missing > 0 and len(known) > 0:
            most = max(self.cluster_up_to, missing)
            if len(known) > most:
                known = np.sort(rng.choice(known, most, replace=False, shuffle=False))
            chance = self._groups(state, known, view.round).chance
            drawn = weighted_draw(chance, min(missing, len(known)), rng)
            chosen = np.concatenate([chosen, known[drawn]])
        return filled_up(view, chosen, fit, rng)

    def observe(self, state: BiasState, selection: Selection, feedback: Feedback) -> None:
        """Remember what answers did to the biases."""
        state.failures.observe(feedback)
        here = feedback.answered
        if feedback.output_bias is not None:
            rows = here & ~state.heard[feedback.clients] if self.keep_first else here
            state.bias[feedback.clients[rows]] = feedback.output_bias[rows]
        state.heard[feedback.clients[here]] = True

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ByBalance()

    def scores(self, state: BiasState, view: RoundView) -> Mapping[str, FloatArray]:
        """Entropy, cluster and chance of the clients that may be drawn, unless they are too many
        to be clustered."""
        fit = view.available & ~state.failures.resting(view.round) & state.heard
        known, num_clients = np.flatnonzero(fit), len(fit)
        if not 0 < len(known) <= max(self.cluster_up_to, view.num_to_choose):
            known = known[:0]
        found = self._groups(state, known, view.round)
        return of_some(
            known,
            num_clients,
            entropy=found.entropy,
            cluster=found.cluster.astype(np.float64),
            chance=found.chance,
        )

    def _groups(self, state: BiasState, clients: IntArray, round_: int) -> "Groups":
        """Entropy, cluster and chance of each of ``clients``."""
        bias, data = (
            state.bias[clients],
            np.broadcast_to(of_rows(state.samples, clients), (len(clients),)),
        )
        moved = bias.any(axis=1)
        entropy = np.zeros(len(clients))
        cluster = np.zeros(len(clients), dtype=np.int64)
        if moved.any():
            entropy[moved] = entropies(bias[moved], self._temperature(state))
            entropy[~moved] = entropy[moved].mean()
        if moved.any() and len(clients) > 1:
            apart = np.abs(entropy[:, np.newaxis] - entropy)
            apart *= self.entropy_weight
            apart += angles(unit_rows(bias))  # Eq. 9
            cluster = WardTree(apart).groups(self.num_clusters or int(state.cohort_size))
        size = np.bincount(cluster)
        mean = np.bincount(cluster, entropy) / size
        gamma = self.gamma * max(1.0 - round_ / self.annealing_rounds, 0.0)
        pi = np.exp(gamma * (mean - mean.max(initial=0.0)))
        total = np.bincount(cluster, data)
        share = np.divide(data, total[cluster], out=np.zeros(len(data)), where=total[cluster] > 0)
        return Groups(entropy, cluster, (pi / max(pi.sum(), 1e-300))[cluster] * share)  # Eq. 10

    def _temperature(self, state: BiasState) -> float:
        if self.temperature is not None:
            return self.temperature
        return float(max(state.bias.max(), -state.bias.min())) / _USUAL_RATIO


@dataclass(frozen=True, slots=True)
class Groups:
    """[n] of some clients: estimated entropy, cluster, and the chance that one draw takes each."""

    entropy: FloatArray
    cluster: IntArray
    chance: FloatArray


@dataclass(frozen=True, slots=True)
class ByBalance(Rule):
    """Clients never heard from first, then drawn by cluster and data."""

    formula = (
        "clients that have never answered come first; the others are drawn: a cluster by the mean "
        "entropy of its clients' labels, then a client of it by its data"
    )

    @property
    def needs(self) -> tuple[str, ...]:
        """What the draw follows from."""
        return ("entropy", "cluster", "chance")

    def merit(self, moment: Moment) -> FloatArray:
        """The chance; clients never heard from before all others."""
        return np.nan_to_num(moment.column("chance"), nan=np.inf)

    def chosen(self, moment: Moment, client: int) -> str:
        """Its chance, and what it follows from."""
        chance = moment.column("chance")
        if np.isnan(chance[client]):
            return (
                "it has never answered, and such clients come first, or it failed lately, and such "
                "clients come last"
            )
        entropy, cluster = moment.column("entropy"), moment.column("cluster")
        group = cluster == cluster[client]
        return (
            f"luck decided; one draw takes it with a chance of {percent(float(chance[client]))}: "
            f"the entropy of its labels seems to be {number(float(entropy[client]))}, and it "
            f"shares a cluster of mean entropy {number(float(np.nanmean(entropy[group])))} with "
            f"{several(int(np.count_nonzero(group)) - 1, 'other client')}"
        )

    passed_over = chosen
