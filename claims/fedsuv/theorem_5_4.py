"""FedSUV, Theorem 5.4: the bound on the largest diagonal in numbers, and a run that fits its proof.

The proof needs, in every round, one observation of both validity and utility of the client x_t
whose diagonal is the largest; features no longer than the root of the ridge's lambda; and one
kernel, known from the beginning, with values up to 1. None of its steps is random: where all this
is so, the bound holds or fails with certainty.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedmuster import FedSUV
from fedmuster.bandits.linear import LinearModel
from fedmuster.bandits.means import utility_radius, validity_radius
from fedmuster.core.records import Feedback, FloatArray, Problem, RoundView
from fedmuster.core.streams import POLICY, WORLD, stream
from fedmuster.policies.fedsuv import candidates as box
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess
from fedmuster.policies.fedsuv.kernel import Kernel
from fedmuster.policies.fedsuv.policy import FedSUVState
from fedmuster.worlds import ValidityUtilityWorld

FACTOR = 2.0
"""Eq. 23 bounds half of a diagonal: an interval ``mean ± radius`` is two radii wide (Eq. 4, 5)."""

MOST = (1 - 1 / math.e) ** -0.5
"""How much larger Eq. 15 may be than with the gains that are computed here, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Theorem54:
    """``sqrt((d alpha² C_T + beta_T gamma_T C) / T)`` (Eq. 15).

    Args:
        num_clients: |X|.
        dimension: d, of the features.
        delta: of the confidence bounds.
        noise: sigma², the variance of an observed utility.
    """

    num_clients: int
    dimension: int
    delta: float
    noise: float

    def bound(self, gains: FloatArray) -> FloatArray:
        """After 1, 2, … rounds, where ``gains`` are gamma_1, gamma_2, …"""
        rounds = np.arange(1, len(gains) + 1)
        alpha = validity_radius(self.delta)
        beta = [utility_radius(self.num_clients, t, self.delta) ** 2 for t in rounds.tolist()]
        c_t, c = 2 * np.log1p(rounds / self.dimension), 2 / math.log1p(1 / self.noise)
        both = self.dimension * alpha**2 * c_t + np.array(beta) * gains * c
        return np.asarray(np.sqrt(both / rounds))  # Eq. 15


def information_gains(kernel: Kernel, points: FloatArray, noise: float, rounds: int) -> FloatArray:
    """``½ log det(I + K / noise)`` of 1, 2, … points, each the most uncertain given those before.

    gamma_T is the largest that any T points have, and nobody can compute it; such greedy points
    have at least 1 - 1/e of it (Krause and Guestrin, 2005), and no more. So with these gains the
    bound is a little too strict, but by no more than a factor of :data:`MOST`.
    """
    variance = np.full(len(points), kernel.signal)
    explained = np.zeros((rounds, len(points)))
    gains = np.zeros(rounds)
    for t in range(rounds):
        i = int(np.argmax(variance))
        gains[t] = 0.5 * math.log1p(variance[i] / noise)
        column = kernel(points, points[i : i + 1])[:, 0] - explained[:t, i] @ explained[:t]
        explained[t] = column / math.sqrt(variance[i] + noise)
        variance = np.maximum(variance - explained[t] ** 2, 0.0)
    return np.cumsum(gains)


def fixed(world: ValidityUtilityWorld) -> FedSUV:
    """FedSUV that knows the noise of this world's utilities, and never fits its kernel anew."""
    return FedSUV(gp=GaussianProcess(fit=False, signal=1.0, noise=world.utility_sd**2))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ideal:
    """A policy and clients as the proof wants them, where everybody always answers.

    Args:
        policy: with a known kernel, and lambda the largest squared length of a feature vector.
        problem: with cohorts of one client: the one whose diagonal is the largest.
        utility: [K], true.
        utility_sd: of a round's utility.
        seed: of all luck.
    """

    policy: FedSUV
    problem: Problem
    utility: FloatArray
    utility_sd: float
    seed: int

    @classmethod
    def of(cls, world: ValidityUtilityWorld, seed: int) -> "Ideal":
        """The clients of ``world``."""
        run = world.start(seed)
        problem = replace(run.problem, cohort_size=1)
        policy = fixed(world)
        features = policy.init(problem).validity.design
        longest = float(np.square(features).sum(axis=1).max())
        return cls(
            policy=replace(policy, regularisation=longest),
            problem=problem,
            utility=run.columns["utility"],
            utility_sd=world.utility_sd,
            seed=seed,
        )

    def widths(self, rounds: int) -> FloatArray:
        """[rounds], w_1, w_2, …"""
        state, policy = self.policy.init(self.problem), self.policy
        self._begin_with_prior(state)
        available = np.ones(self.problem.num_clients, dtype=np.bool_)
        widths = np.empty(rounds)
        for t in range(1, rounds + 1):
            candidates = state.candidates.remaining()
            widths[t - 1] = box.diagonals(state.boxes, candidates).max()  # Eq. 10
            view = RoundView(round=t, cohort_size=1, available=available)
            selection = policy.select(state, view, stream(self.seed, POLICY, t))
            who = selection.clients
            luck = stream(self.seed, WORLD, t).standard_normal(len(who))
            worth = np.clip(self.utility[who] + self.utility_sd * luck, -1.0, 1.0)
            answer = Feedback(
                round=t, clients=who, latency_seconds=np.ones(len(who)), signals={"utility": worth}
            )
            policy.observe(state, selection, answer)
        return widths

    def _begin_with_prior(self, state: FedSUVState) -> None:
        """R_1 = Q_1, of nothing but the priors; FedSUV itself begins with R_2 = Q_2.

        And a diagonal counts utility in its own unit: no utility above 1 is ever observed, so the
        unit stays 1, and x_t is the client of the largest diagonal in the proof's sense.
        """
        state.boxes.utility_scale[...] = 1.0
        count, delta = self.problem.num_clients, self.policy.delta
        linear = LinearModel(regularisation=self.policy.regularisation)
        expected, width = linear.predict(state.validity)
        mean, sd = (np.broadcast_to(of, count) for of in self.policy.gp.posterior(state.utility))
        box.intersect(
            state.boxes,
            box.interval(expected, validity_radius(delta) * width),
            box.interval(mean, utility_radius(count, 1, delta) * sd),
        )


def theorem_for(policy: FedSUV, problem: Problem) -> Theorem54:
    """With d the attributes and the constant that FedSUV's linear model has."""
    return Theorem54(
        num_clients=problem.num_clients,
        dimension=policy.init(problem).validity.design.shape[1],
        delta=policy.delta,
        noise=policy.gp.noise,
    )


def gains_for(policy: FedSUV, problem: Problem, rounds: int) -> FloatArray:
    """gamma_1, gamma_2, … of the kernel that a policy of :func:`fixed` has."""
    state, gp = policy.init(problem).utility, policy.gp
    kernel = Kernel(gp.kernel, state.hyper.length_scales, gp.signal)
    return information_gains(kernel, state.attributes, gp.noise, rounds)
