"""The loop: a policy in a world, with rounds or without, training a model.

Four parts say how a federation works. The policy chooses who is asked; slots say when; a trigger
says when the server aggregates; staleness says what old answers are worth. Rounds are the case in
which all slots are filled at once and the server waits for them together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core import state as states
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import configured
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.feedback import FeedbackReport
from fedmuster.core.policy import Policy, as_policy
from fedmuster.core.records import Feedback, Selection, checked_seed
from fedmuster.core.selector import Selector
from fedmuster.core.state import Array
from fedmuster.federation.agenda import Agenda
from fedmuster.federation.asking import Asking
from fedmuster.federation.jobs import Decision, Job, load_sent, sent_arrays
from fedmuster.federation.regret import judge_for
from fedmuster.federation.rounds import Rounds
from fedmuster.federation.rows import Checkpoint, Horizon, RoundRow, Watch
from fedmuster.federation.settings import Federation
from fedmuster.federation.slots import Slots
from fedmuster.federation.work import Work
from fedmuster.policies.genie import Genie
from fedmuster.privacy.budget import Grant, PrivacyRow, Protection
from fedmuster.training.servers import Starts
from fedmuster.training.trainer import LearningRow, Trainer
from fedmuster.training.training import OwnTraining, Training
from fedmuster.worlds.adversaries import INFLATED
from fedmuster.worlds.world import WORLDS, World, WorldRound, WorldRun

S = TypeVar("S")


class Simulation(Generic[S]):
    """A policy in a world, from aggregation to aggregation.

    Args:
        policy: chooses the clients: a policy, or its name with settings, such as "bsfl:alpha=3".
        world: simulates the clients: a world, or its name, such as "bsfl-rates:num_clients=50".
        seed: of world and policy; two policies with the same seed face the same luck.
        federation: when clients are asked, when the server aggregates, what old answers are worth;
            what it does not set is as the policy was published. None for rounds.
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
        >>> without_rounds = Federation(concurrency=5, buffer=2)
        >>> row = Simulation("bsfl", BSFLRates(), seed=1, federation=without_rounds).step()
        >>> row.num_completed
        2
    """

    def __init__(
        self,
        policy: Policy[S] | str,
        world: World | str,
        *,
        seed: int,
        federation: Federation | None = None,
        genie: Genie | EdgeUtility | None = None,
        must_judge: bool = True,
        training: Training | OwnTraining | None = None,
        horizon: Horizon | None = None,
        protection: Protection | None = None,
        watch: Watch | None = None,
    ) -> None:
        policy = as_policy(policy, owner="Simulation")
        seed = checked_seed(seed, owner="Simulation")
        world = configured(WORLDS, world, owner="Simulation")
        given = Federation(rounds=True) if federation is None else federation
        self.world = given.resized(world).start(seed)
        problem = self.world.problem
        self.settings = given.settled(policy, problem)
        if genie is not None and not (self.world.waits_for_all and self.settings.in_rounds):
            if must_judge:
                raise ConfigError(
                    "regret is defined for cohorts that are waited for, not without rounds, for "
                    "over_selection > 1 or for uploads one after the other: write regret = false, "
                    "or leave it out",
                    key=("regret",),
                )
            genie = None
        adversaries = self.world.adversaries
        _require_something_to_attack(self.world, trains=training is not None)
        self.trainer: Trainer | None = None
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
                staleness=self.settings.worth,
                keeps_late=self.settings.in_rounds,
                measure_gain=policy.wants_gain,
                twins=None if adversaries is None else adversaries.twins,
            )
            self._require_enough_answers(self.trainer)
            problem = self.trainer.describe(problem, output_bias=policy.wants_output_bias)
        assert self.settings.rest_after is not None
        self.selector = Selector(
            policy,
            problem,
            seed=seed,
            rest_after=self.settings.rest_after,
            check_reports=self.settings.check_reports,
        )
        self.judge = None if genie is None else judge_for(genie, problem, seed=seed)
        self.horizon, self.watch = horizon, watch
        self.elapsed_seconds = 0.0
        self.version = 0
        """How often servers have aggregated: the number of journal rows."""
        self.stuck: str | None = None
        """Why nothing more can happen, if so."""
        self.sample_orders: IntArray = np.zeros(problem.num_clients, dtype=np.int64)
        """int64[K], the number that seeded each client's order of samples in its last job."""
        self.agenda = Agenda()
        self.budget = None
        if protection is not None:
            try:
                if self.trainer is not None:
                    self.trainer.require_releasable()
                self.budget = protection.start(num_clients=problem.num_clients, seed=seed)
            except BaseException:
                self.close()
                raise
        self.work = None if self.trainer is None else Work(self.trainer, self.budget, adversaries)
        self._asking: Asking = Rounds(self) if self.settings.in_rounds else Slots(self)
        self._back: list[Job] = []
        self._buffer: list[Job] = []
        self._scores: dict[str, FloatArray] | None = None
        self._num_completed: IntArray = np.zeros(problem.num_servers, dtype=np.int64)
        self._num_refused = 0

    def _require_enough_answers(self, trainer: Trainer) -> None:
        """Complain if every aggregation would have too few answers to change the model."""
        trigger, wanted = self.settings.trigger, trainer.edge_servers[0].min_answers
        if trigger is not None and trigger.least_answers < wanted:
            trainer.close()
            raise ConfigError(
                f"min_answers = {wanted}, but without rounds the server may aggregate "
                f"{trigger.least_answers}, which would be lost: write buffer = {wanted} in "
                "[federation], or a smaller min_answers",
                key=("training", "min_answers"),
            )

    def step(self) -> RoundRow:
        """Play until the server aggregates: in rounds, one round."""
        asking = self._asking
        while True:
            # ask only if no aggregation is due now: clients asked after it get the new model
            if (due := asking.due()) > self.elapsed_seconds:
                asking.ask()
                due = asking.due()
            if due < np.inf and due <= self.agenda.next_seconds:
                self.elapsed_seconds = max(self.elapsed_seconds, due)
                return self._aggregate()
            if len(self.agenda) == 0:  # nobody is out, and nobody can be asked
                self.stuck = asking.run_dry()
                return self._aggregate()
            event = self.agenda.next()
            self.elapsed_seconds = max(self.elapsed_seconds, event.at_seconds)
            self._back += asking.handle(event)

    def select(
        self, drawn: WorldRound, *, count: int | None = None, cohort_size: int | None = None
    ) -> Selection:
        """Let the policy choose among the clients of ``drawn``; see :meth:`Selector.select`."""
        selector = self.selector
        selection = selector.select(
            count=count,
            cohort_size=cohort_size,
            available=drawn.available,
            features=drawn.features,
            edges=drawn.edges,
            truth=drawn.truth if selector.policy.oracle else None,  # costs as much as a round
            privacy_left=self.privacy_left,
            ask_loss=None if self.trainer is None else self._ask_loss,
            forecast=drawn.forecast,
        )
        self._watch_scores()
        if self.trainer is not None and self.trainer.weighting == "unbiased":
            _require_inclusion(selector.policy, selection)
        return selection

    def debit(self, selection: Selection) -> Grant | None:
        """Debit the privacy of the selected clients before they are asked.

        None without a ledger.
        """
        if self.budget is None:
            return None
        return self.budget.debit(self.selector.decisions, selection.clients)

    def dispatch(
        self,
        selection: Selection,
        feedback: Feedback,
        latency: FloatArray,
        grant: Grant | None,
        *,
        version: int,
    ) -> Decision:
        """Give the selected clients jobs on the current models.

        ``version`` is how often the server that asks them has aggregated.
        """
        clients, round_number = selection.clients, version + 1
        # In rounds the number of the round; without, a client may train twice on one model.
        orders = np.maximum(round_number, self.sample_orders[clients] + 1)
        self.sample_orders[clients] = orders
        starts: Starts = ()
        if self.work is not None:
            starts = self.work.trainer.starts(clients, selection.edges, round_number)
        return Decision(
            number=self.selector.decisions,
            version=version,
            asked_at_seconds=self.elapsed_seconds,
            selection=selection,
            feedback=feedback,
            latency_seconds=latency,
            sample_orders=orders,
            starts=starts,
            grant=grant,
        )

    def hear(self) -> Feedback | None:
        """Train the clients that are back, let the policy observe them, buffer their answers.

        Return what it observed.
        """
        jobs, self._back = self._back, []
        feedback = self._asking.feedback_of(jobs)
        if feedback is None:
            return None
        answered = feedback.answered
        senders = [job for job, came in zip(jobs, answered.tolist(), strict=True) if came]
        if self.work is not None:
            policy = self.selector.policy
            sketches, size = None, self.selector.wanted_sketch_size
            output_bias, biases = None, policy.wants_output_bias
            sent = self.work.send(senders, deltas=size > 0 or biases)
            completed = answered.copy()
            completed[answered] = sent.usable
            signals = {name: _spread(of, answered) for name, of in sent.updates.signals.items()}
            if size > 0:
                sketches = _spread(self.work.sketches(sent, size), completed)
            if biases:
                output_bias = _spread(self.work.output_bias(sent), completed)
            feedback = replace(
                feedback,
                completed=completed,
                signals={**feedback.signals, **signals},
                sketches=sketches,
                output_bias=output_bias,
                used=None if feedback.used is None else feedback.used & completed,
            )
            senders = [job for job, fits in zip(senders, sent.usable.tolist(), strict=True) if fits]
        report = self.selector.observe(self._told(jobs, feedback))
        distrusted = set(report.distrusted.tolist())
        self._buffer += [job for job in senders if job.client not in distrusted]
        self._count(jobs, report)
        self._num_refused += sum(report.refused.values())
        return feedback

    def _told(self, jobs: Sequence[Job], feedback: Feedback) -> Feedback:
        """What clients tell the server; adversaries may lie.

        Where reports are checked, the latency is by the server's clock; else it is as reported.
        """
        adversaries = self.world.adversaries
        if adversaries is None:
            return feedback
        orders = np.array([j.decision.sample_orders[j.row] for j in jobs], dtype=np.int64)
        told, late = adversaries.told(feedback, orders), feedback.late
        if late is not None:
            late = adversaries.told(late, self.version + 1)
        if not self.settings.check_reports:
            late = None if late is None else _as_reported(late)
            return replace(_as_reported(told), late=late)
        sizes = {job.decision.number: len(job.decision.latency_seconds) for job in jobs}
        overhead = {number: adversaries.overhead(number, size) for number, size in sizes.items()}
        beyond = np.array([overhead[job.decision.number][job.row] for job in jobs], np.float64)
        return replace(told, latency_seconds=told.latency_seconds + beyond, late=late)

    def _count(self, jobs: Sequence[Job], report: FeedbackReport) -> None:
        """Count completed jobs, at each edge server where there are several."""
        if len(self._num_completed) == 1:
            self._num_completed += len(jobs) - len(report.not_completed)
        else:
            failed = set(report.not_completed.tolist())
            np.add.at(self._num_completed, [j.edge for j in jobs if j.client not in failed], 1)

    def _aggregate(self) -> RoundRow:
        """Make one model of what has come, and a row of what has happened since the last time."""
        asking, only_edge = self._asking, self._asking.only_edge
        heard = self.hear()
        jobs = [job for job in self._buffer if only_edge in (None, job.edge)]
        self._buffer = [job for job in self._buffer if only_edge not in (None, job.edge)]
        ages = np.array([asking.age(job) for job in jobs], dtype=np.int64)
        used = asking.used(jobs) & (self.settings.worth.factors(ages) > 0)
        learning = LearningRow() if self.work is None else self._learn(self.work, jobs, used, ages)
        self.version += 1
        if self.work is not None and learning.num_aggregated == 0:
            used[:] = False  # too few for min_answers
        here = slice(None) if only_edge is None else slice(only_edge, only_edge + 1)
        row = RoundRow(
            round=self.version,
            num_completed=int(self._num_completed[here].sum()),
            num_refused=self._num_refused,
            learning=learning,
            privacy=PrivacyRow() if self.budget is None else self.budget.standing(),
            scores=self._scores,
            **asking.columns(jobs, used, heard),
        )
        asking.aggregated(jobs)
        self._num_completed[here], self._num_refused = 0, 0
        self._scores = None
        return row

    def _learn(
        self, work: Work, jobs: Sequence[Job], used: BoolArray, ages: IntArray
    ) -> LearningRow:
        round_number, cohort = self.version + 1, self._asking.cohort
        count, train_loss = work.aggregate(
            jobs,
            used,
            ages,
            round_number=round_number,
            asked=cohort,
            now_seconds=self.elapsed_seconds,
            only_edge=self._asking.only_edge,
        )
        # after the merging: an answer that is late enters a later model
        self._asking.hold_late(work, round_number=round_number)
        last = self._reached(round_number) or self.ending is not None
        only_edge = self._asking.only_edge
        return work.learned(round_number, count, train_loss, last=last, only_edge=only_edge)

    def checkpoint(self) -> Checkpoint:
        """The state after the last aggregation, to be saved."""
        loop = self._asking.arrays()
        return Checkpoint(
            round=self.version,
            elapsed_seconds=self.elapsed_seconds,
            selector=self.selector.to_bytes(),
            judge=None if self.judge is None else self.judge.to_bytes(),
            trainer=None if self.trainer is None else self.trainer.to_bytes(),
            budget=None if self.budget is None else self.budget.to_bytes(),
            loop=states.to_bytes(loop, {}) if loop else None,
        )

    def load(self, checkpoint: Checkpoint, *, source: str) -> None:
        """Continue from a checkpoint. The world needs none: its rounds follow from the seed."""
        for what in ("judge", "trainer", "budget"):
            if (getattr(self, what) is None) != (getattr(checkpoint, what) is None):
                written = "with" if getattr(self, what) is None else "without"
                raise StateError(f"{source} was written {written} a {what}")
        policy = self.selector.policy
        if (checkpoint.loop is None) == bool(self._asking.arrays()):
            way = "in rounds" if self.settings.in_rounds else "without rounds"
            raise StateError(
                f"{source} cannot be continued {way} with {policy.name}: it was written in another "
                "way, or with a policy that hears late answers where this one does not"
            )
        self.selector = Selector.from_bytes(checkpoint.selector, policy, source=source)
        self.version, self.elapsed_seconds = checkpoint.round, checkpoint.elapsed_seconds
        if self.judge is not None and checkpoint.judge is not None:
            self.judge.load(checkpoint.judge, source=source)
        if self.trainer is not None and checkpoint.trainer is not None:
            self.trainer.load(checkpoint.trainer, source=source)
        if self.budget is not None and checkpoint.budget is not None:
            self.budget.load(checkpoint.budget, after_round=self.selector.decisions)
        if checkpoint.loop is not None:
            arrays, _ = states.from_bytes(checkpoint.loop, source=source)
            with states.missing_arrays(source):
                self._asking.load(arrays, lost=not self.repeatable)

    def kept_arrays(self, ended: Sequence[Job]) -> dict[str, Array]:
        """To be saved of these jobs: how they ended, and the answers that are to be aggregated."""
        columns: dict[str, Array] = {"num_completed": self._num_completed}
        rejected = [] if self.work is None else self.work.rejected
        for name, jobs in (("waits", self._buffer), ("rejected", rejected)):
            keys = {job.identity for job in jobs}
            columns[name] = np.array([job.identity in keys for job in ended], dtype=np.bool_)
        return columns if self.work is None else columns | sent_arrays(self._buffer)

    def load_kept(self, ended: Sequence[Job], arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`kept_arrays`."""
        self._num_completed = arrays["num_completed"].copy()
        self._buffer = [ended[row] for row in np.flatnonzero(arrays["waits"]).tolist()]
        if self.work is not None:
            rejected = np.flatnonzero(arrays["rejected"]).tolist()
            self.work.rejected = [ended[row] for row in rejected]
            load_sent(self._buffer, arrays)

    def close(self) -> None:
        """End worker processes of the training, and release the ledger."""
        if self.trainer is not None:
            self.trainer.close()
        if self.budget is not None:
            self.budget.close()

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached, or nothing more can happen."""
        return self._reached(self.version) or self.ending is not None

    @property
    def ending(self) -> str | None:
        """Why the run ends before its horizon, if it does."""
        return self.exhausted or self.stuck

    @property
    def exhausted(self) -> str | None:
        """Why privacy ends the run, if it does: too few clients can be asked once more."""
        if self.budget is None or len(self.selector.tickets) > 0:
            return None
        problem = self.selector.problem
        enough = problem.cohort_size if self.settings.in_rounds else 1
        return self.budget.ending(cohort_size=enough, num_edges=problem.num_edges)

    @property
    def repeatable(self) -> bool:
        """Whether rounds lost in a crash can be played again; else commit every round."""
        return self.budget is None or self.budget.privacy.simulated

    @property
    def privacy_left(self) -> FloatArray | None:
        """[K], the share of its privacy budget that each client has left; None without privacy."""
        return None if self.budget is None else self.budget.left

    def reachable(self, drawn: WorldRound) -> WorldRound:
        """Without clients that have no privacy left."""
        if self.budget is None:
            return drawn
        return replace(drawn, available=drawn.available & self.budget.able)

    def _watch_scores(self) -> None:
        """Keep the scores of the first choice of a round in which they are due."""
        if self.watch is None or self._scores is not None or not self.watch.due(self.version + 1):
            return
        watched = self.watch.watched(self.selector.problem.num_clients)
        self._scores = {name: values[watched] for name, values in self.selector.scores().items()}

    def _reached(self, rounds: int) -> bool:
        return self.horizon is not None and self.horizon.reached(rounds, self.elapsed_seconds)

    def _ask_loss(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        assert self.trainer is not None
        if self.budget is not None:
            raise ConfigError(
                f"{self.selector.policy.name} asks clients for losses, which tell of their data, "
                "and for which nobody has paid: choose another policy, or write private = false"
            )
        losses = self.trainer.ask_loss(clients, batch_size=batch_size)
        adversaries = self.world.adversaries
        if adversaries is None:
            return losses
        return adversaries.asked_loss(clients, losses, self.version + 1)


def _require_inclusion(policy: Policy[Any], selection: Selection) -> None:
    """Complain about a policy that does not say with which probability it chose clients."""
    if selection.inclusion is None and len(selection.clients) > 0:
        raise ConfigError(
            'weighting = "unbiased" needs the probability with which each client was chosen, which '
            f"{policy.name} does not know: give it a share of exploration (explore = 0.05), choose "
            "a policy that knows it (random, clustered-sampling, optimal-sampling), or leave "
            "weighting out",
            key=("training", "weighting"),
        )


def _require_something_to_attack(world: WorldRun, *, trains: bool) -> None:
    """Complain about adversaries that attack what the run does not have."""
    if world.adversaries is None or trains:
        return
    attack = world.adversaries.attack
    if attack.poisons:
        raise ConfigError(
            "adversaries poison updates, but nothing is trained: write [training], or leave "
            "update_factor and update_noise out",
            key=("world", "adversaries"),
        )
    if attack.loss_factor != 1.0 and INFLATED.isdisjoint(world.draw(1).signals):
        raise ConfigError(
            "adversaries inflate losses, but nothing is trained and the answers of this world have "
            "none: write [training], or leave loss_factor out",
            key=("world", "adversaries", "loss_factor"),
        )


def _as_reported(feedback: Feedback) -> Feedback:
    """The feedback of a server that believes the times that clients report."""
    assert feedback.reported_seconds is not None
    return replace(feedback, latency_seconds=feedback.reported_seconds, reported_seconds=None)


def _spread(values: FloatArray, answered: BoolArray) -> FloatArray:
    """``values`` with a row for each job that is back, NaN for those that did not answer."""
    spread = np.full((len(answered), *values.shape[1:]), np.nan)
    spread[answered] = values
    return spread
