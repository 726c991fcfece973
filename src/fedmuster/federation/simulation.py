"""The round loop: a policy in a world, judged against the genie, training a model."""

from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.checking import warn_if_everyone
from fedmuster.core.config import configured
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.policy import Policy, as_policy
from fedmuster.core.records import Feedback, Late, RoundView, Selection, checked_seed
from fedmuster.core.selector import Selector
from fedmuster.federation.regret import Verdict, judge_for
from fedmuster.federation.rows import Checkpoint, EdgeRow, Horizon, RoundRow, Watch
from fedmuster.policies.genie import Genie
from fedmuster.privacy.budget import Grant, PrivacyRow, Protection
from fedmuster.training.trainer import LearningRow
from fedmuster.training.training import OwnTraining, Training
from fedmuster.worlds.world import WORLDS, World, WorldRound

S = TypeVar("S")


class Simulation(Generic[S]):
    """A policy in a world, round by round.

    Args:
        policy: chooses the cohorts: a policy, or its name with settings, such as "bsfl:alpha=3".
        world: simulates the clients: a world, or its name, such as "bsfl-rates:num_clients=50".
        seed: of world and policy; two policies with the same seed face the same luck.
        genie: the reward that measures regret, or where there are edge servers the utility that
            does; None for no regret (faster).
        must_judge: whether to complain where regret is not defined; else the run has no regret.
        training: what the chosen clients train; None for selection alone.
        horizon: when the run ends, so that its last round is evaluated; None for an open end.
        protection: the privacy promise to clients and the ledger that keeps it; None for none.
        watch: the clients whose scores the journal keeps; None for no scores.

    Example:
        >>> from fedmuster.policies import BSFL, Genie
        >>> from fedmuster.worlds import BSFLRates
        >>> simulation = Simulation(BSFL(), BSFLRates(), seed=1, genie=Genie())
        >>> rows = [simulation.step() for _ in range(100)]
        >>> rows[-1].round, rows[0].clients.shape
        (100, (5,))
    """

    def __init__(
        self,
        policy: Policy[S] | str,
        world: World | str,
        *,
        seed: int,
        genie: Genie | EdgeUtility | None = None,
        must_judge: bool = True,
        training: Training | OwnTraining | None = None,
        horizon: Horizon | None = None,
        protection: Protection | None = None,
        watch: Watch | None = None,
    ) -> None:
        policy = as_policy(policy, owner="Simulation")
        seed = checked_seed(seed, owner="Simulation")
        self.world = configured(WORLDS, world, owner="Simulation").start(seed)
        problem = self.world.problem
        if genie is not None and not self.world.waits_for_all:
            if must_judge:
                raise ConfigError(
                    "regret is defined for cohorts that are waited for, not for over_selection > 1 "
                    "or uploads one after the other: write regret = false, or leave it out",
                    key=("regret",),
                )
            genie = None
        self.trainer = None
        if training is not None:
            if problem.quality is not None:
                raise ConfigError(
                    "both the world (data) and the training (partition) say how good the data of "
                    "each client are: remove data from [world]",
                    key=("world", "data"),
                )
            self.trainer = training.start(
                num_clients=problem.num_clients,
                seed=seed,
                num_samples=problem.num_samples,
                num_edges=problem.num_servers,
                late_answers=policy.late_answers,
                measure_gain=policy.wants_gain,
            )
            problem = self.trainer.describe(problem)
        self.selector = Selector(policy, problem, seed=seed)
        self.judge = None if genie is None else judge_for(genie, problem, seed=seed)
        self.horizon, self.watch = horizon, watch
        self.elapsed_seconds = 0.0
        self.budget = None
        if protection is not None:
            try:
                if self.trainer is not None:
                    self.trainer.require_releasable()
                self.budget = protection.start(num_clients=problem.num_clients, seed=seed)
            except BaseException:
                self.close()
                raise

    def step(self) -> RoundRow:
        """Play one round."""
        selector, budget = self.selector, self.budget
        if selector.round == 1:
            warn_if_everyone(selector.policy, selector.problem)
        drawn = self.world.realise(selector.round, now_seconds=self.elapsed_seconds)
        drawn = self._reachable(drawn)
        privacy_left = None if budget is None else budget.left
        selection = selector.select(
            available=drawn.available,
            cohort_size=self.world.num_to_ask,
            features=drawn.features,
            edges=drawn.edges,
            truth=drawn.truth if selector.policy.oracle else None,  # costs as much as a round
            privacy_left=privacy_left,
            ask_loss=None if self.trainer is None else self._ask_loss,
            forecast=drawn.forecast,
        )
        scores = self._watched_scores(selection)
        verdict = Verdict(regret=np.nan, additive=np.nan)
        # With a quota the round does not wait for the cohort, and regret is not defined.
        if self.judge is not None and selection.quota is None:
            whole = RoundView(  # with the truth, for the judge's eyes only
                round=drawn.round,
                cohort_size=selector.problem.cohort_size,
                available=drawn.available,
                edges=drawn.edges,
                truth=drawn.truth,
                privacy_left=privacy_left,
            )
            verdict = self.judge.assess(whole, selection)
        # Clients are asked from here on: each of them must have paid.
        grant = None if budget is None else budget.debit(selection.round, selection.clients)
        outcome = drawn.play(selection)
        feedback, late = outcome.feedback, outcome.late
        if grant is not None:
            feedback, late = _releasable(feedback, late, grant)
        if self.judge is not None:
            self.judge.record(selection, feedback)
        self.elapsed_seconds += outcome.round_seconds
        learning, release = LearningRow(), None
        if budget is not None and grant is not None:
            release = partial(budget.release, grant)
        if self.trainer is not None:
            feedback, learning = self.trainer.train(
                feedback,
                evaluate=self._reached(selection.round) or self.exhausted is not None,
                release=release,
                sketch_size=selector.policy.wanted_sketch_size,
                edges=selection.edges,
                late=late,
                ends_at_seconds=self.elapsed_seconds,
            )
        report = selector.observe(feedback)
        # At edge servers the policy hears of participants; elsewhere speed is as it was measured.
        heard = outcome.feedback if drawn.edges is None else feedback
        reward, tau_min = np.nan, self.world.tau_min_seconds
        if self.judge is not None:
            reward = self.judge.reward(verdict, heard, tau_min_seconds=tau_min)
        return RoundRow(
            round=selection.round,
            seconds=outcome.round_seconds,
            reward=reward,
            regret=verdict.regret,
            num_available=int(np.count_nonzero(drawn.available)),
            num_completed=len(selection.clients) - len(report.not_completed),
            num_refused=sum(report.refused.values()),
            clients=selection.clients,
            learning=learning,
            privacy=PrivacyRow() if budget is None else budget.standing(),
            scores=scores,
            network=EdgeRow.of(drawn.edges, selection, heard, drawn.position_km),
        )

    def checkpoint(self) -> Checkpoint:
        """The state after the last round, to be saved."""
        return Checkpoint(
            round=self.selector.round - 1,
            elapsed_seconds=self.elapsed_seconds,
            selector=self.selector.to_bytes(),
            judge=None if self.judge is None else self.judge.to_bytes(),
            trainer=None if self.trainer is None else self.trainer.to_bytes(),
            budget=None if self.budget is None else self.budget.to_bytes(),
        )

    def load(self, checkpoint: Checkpoint, *, source: str) -> None:
        """Continue from a checkpoint. The world needs none: its rounds follow from the seed."""
        for what in ("judge", "trainer", "budget"):
            if (getattr(self, what) is None) != (getattr(checkpoint, what) is None):
                written = "with" if getattr(self, what) is None else "without"
                raise StateError(f"{source} was written {written} a {what}")
        policy = self.selector.policy
        self.selector = Selector.from_bytes(checkpoint.selector, policy, source=source)
        if self.judge is not None and checkpoint.judge is not None:
            self.judge.load(checkpoint.judge, source=source)
        if self.trainer is not None and checkpoint.trainer is not None:
            self.trainer.load(checkpoint.trainer, source=source)
        if self.budget is not None and checkpoint.budget is not None:
            self.budget.load(checkpoint.budget, after_round=checkpoint.round)
        self.elapsed_seconds = checkpoint.elapsed_seconds

    def close(self) -> None:
        """End worker processes of the training, and release the ledger."""
        if self.trainer is not None:
            self.trainer.close()
        if self.budget is not None:
            self.budget.close()

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached, or the clients' privacy is spent."""
        return self._reached(self.selector.round - 1) or self.exhausted is not None

    @property
    def exhausted(self) -> str | None:
        """Why privacy ends the run, if it does: too few clients can be asked once more."""
        if self.budget is None:
            return None
        problem = self.selector.problem
        return self.budget.ending(cohort_size=problem.cohort_size, num_edges=problem.num_edges)

    @property
    def repeatable(self) -> bool:
        """Whether rounds lost in a crash can be played again; else commit every round."""
        return self.budget is None or self.budget.privacy.simulated

    def _reachable(self, drawn: WorldRound) -> WorldRound:
        """The round without clients that have no privacy left or are busy with an earlier round.

        If no client is left, the server waits for the first that is done.
        """
        available, wait = drawn.available, drawn.wait_seconds
        if self.budget is not None:
            available = available & self.budget.able
        if self.trainer is not None and len(self.trainer.busy.clients) > 0:
            busy = self.trainer.busy
            available = available.copy()
            available[busy.clients] = False
            if not available.any():
                wait = max(wait, float(busy.arrives_at_seconds.min()) - self.elapsed_seconds)
        return replace(drawn, available=available, wait_seconds=wait)

    def _watched_scores(self, selection: Selection) -> dict[str, FloatArray] | None:
        if self.watch is None or not self.watch.due(selection.round):
            return None
        watched = self.watch.watched(self.selector.problem.num_clients)
        return {name: values[watched] for name, values in self.selector.scores().items()}

    def _reached(self, rounds: int) -> bool:
        return self.horizon is not None and self.horizon.reached(rounds, self.elapsed_seconds)

    def _ask_loss(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        assert self.trainer is not None
        if self.budget is not None:
            raise ConfigError(
                f"{self.selector.policy.name} asks clients for losses, which tell of their data, "
                "and for which nobody has paid: choose another policy, or write private = false"
            )
        return self.trainer.ask_loss(clients, batch_size=batch_size)


def _releasable(feedback: Feedback, late: Late, grant: Grant) -> tuple[Feedback, Late]:
    """Clients that may not send do not complete, and do not come late either."""
    sends = np.isin(late.clients, grant.clients[grant.releasable])
    return (
        replace(feedback, completed=feedback.answered & grant.releasable),
        Late(clients=late.clients[sends], arrives_at_seconds=late.arrives_at_seconds[sends]),
    )
