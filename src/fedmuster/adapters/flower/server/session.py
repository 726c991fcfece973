"""One federation while it runs: Flower's loop calls these four methods in the strategy's place."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedmuster.adapters.flower.choosing.cohorts import Choice, Cohorts, EndedError, Met
from fedmuster.adapters.flower.choosing.loss_question import LossQuestion
from fedmuster.adapters.flower.grids.views import OnlyThese, Posting, TimedGrid
from fedmuster.adapters.flower.log import say, warn
from fedmuster.adapters.flower.record.config_memory import ConfigMemory
from fedmuster.adapters.flower.record.record import Record, Saved, client_table
from fedmuster.adapters.flower.record.strategy_memory import StrategyMemory
from fedmuster.adapters.flower.replies.array_forms import Forms
from fedmuster.adapters.flower.replies.hearing import Hearing
from fedmuster.adapters.flower.replies.sorting import (
    RoundReplies,
    refused,
    sort_replies,
)
from fedmuster.adapters.flower.server import news
from fedmuster.adapters.flower.server.checks import least_nodes
from fedmuster.adapters.flower.server.evaluation import EvaluateFn, Evaluations
from fedmuster.adapters.flower.server.orders import Orders
from fedmuster.adapters.flower.server.own_methods import Methods, has_own_start
from fedmuster.adapters.flower.server.own_rounds import OwnRounds
from fedmuster.adapters.flower.server.settings import Settings
from fedmuster.core.errors import CallOrderError, DataError, StateError
from fedmuster.core.records import Feedback
from fedmuster.federation import EdgeRow, RoundRow
from fedmuster.privacy.budget import PrivacyRow
from fedmuster.training.trainer import LearningRow


class Session:
    """A strategy, its record and the cohorts that fedmuster chooses for it.

    Args:
        settings: of the federation.
        strategy: the user's, as it came.
        record: of the run, open.
        grid: the one that Flower's loop sends through.
        arrays: the model to begin with, where nothing is on record.
        met: the nodes that earlier sessions of this process have met.
        in_step: whether the strategy is what it was when the last round was committed: then
            nothing is put into it, for its user may have changed something since.
        evaluate_config: what the user gives evaluations, for policies that ask for losses.
        rounds_before: of the strategy, that the user has had from earlier starts. Where they are
            all that is on record, the user has had that model, and gives one back that counts.
    """

    def __init__(
        self,
        settings: Settings,
        strategy: Strategy,
        record: Record,
        grid: TimedGrid,
        *,
        arrays: ArrayRecord,
        met: Met,
        evaluate_config: ConfigRecord | None = None,
        rounds_before: int = 0,
        in_step: bool = False,
    ) -> None:
        self._settings = settings
        self._strategy = strategy
        self._own = Methods.of(strategy)
        self._memory = StrategyMemory(strategy)
        self._record = record
        self._grid = grid
        self._cohorts = Cohorts(
            settings,
            least=least_nodes(strategy),
            run=record.run,
            ledger=record.cell.ledger(settings.folder),
            met=met,
        )
        self._orders = Orders(settings, strategy, run=record.run)
        self._hearing = Hearing()
        self._forms = Forms(arrays)
        self._choice: Choice | None = None
        self._posting: Posting | None = None
        self.arrays = arrays
        """The global model after the last round."""
        self.elapsed_seconds = 0.0
        self.rounds_done = 0
        """How many are on record."""
        self.own_rounds = OwnRounds()
        """Those of the strategy's loop: the same number, unless it trains several times in each."""
        self._began_with = _shapes(arrays)
        self.train_config = ConfigMemory()
        self._evaluate_config = evaluate_config or ConfigRecord()
        if record.saved is not None:
            try:
                self._load(record.saved, in_step=in_step)
            except BaseException:
                self.close()
                raise
        met.in_flight.forget_from(self._cohorts.num_clients)
        self._done_before = self.rounds_done
        if self.own_rounds.done == rounds_before > 0:
            self.arrays = arrays
        grid.silent = self._note_silent
        self._evaluations = Evaluations(
            strategy,
            record,
            done=lambda: self.rounds_done,
            number=self.own_rounds.number,
            name_of=self._cohorts.name_of_node,
            busy=self._cohorts.busy_nodes,
            wait_seconds=settings.wait_seconds,
        )
        self._tell_not_kept()

    def _note_silent(self, messages: Sequence[Message]) -> None:
        """Of evaluations, which are of the model after the last round."""
        names = [self._cohorts.name_of_node(m.metadata.dst_node_id) for m in messages]
        news.tell_missing(self.rounds_done, names)
        self._cohorts.note_silent(messages, round_=self.rounds_done)

    def _tell_not_kept(self) -> None:
        for name in self._memory.not_kept():
            warn(f"{name} of the strategy cannot be saved: after a crash it begins anew")

    def _load(self, saved: Saved, *, in_step: bool) -> None:
        source = str(self._settings.folder)
        parts = saved.parts
        self._cohorts.load(parts["roster"], saved.selector, saved.budget, source=source)
        self._hearing = Hearing.from_parts(parts)
        for image in _of_strategy(saved):
            self._memory.restore(image, source=source, in_step=in_step)
        self._began_with = parts["began_with"]
        # A strategy may give back other arrays than it was given.
        if _shapes(self.arrays) not in (self._began_with, _shapes(saved.model)):
            raise StateError(
                f"{source} holds the run of another model than initial_arrays: names or shapes of "
                "its arrays differ. Give Muster another folder, or start with that model"
            )
        self.own_rounds = OwnRounds(parts["own_rounds"])
        self.train_config = ConfigMemory(parts["train_config"])
        self.arrays = saved.model
        self.elapsed_seconds = saved.elapsed_seconds
        self.rounds_done = saved.round

    @property
    def methods(self) -> Methods:
        """What stands in place of the strategy's own."""
        return Methods(
            self.configure_train,
            self.aggregate_train,
            self._evaluations.configure_evaluate,
            self.aggregate_evaluate,
        )

    def on_server(self, evaluate: EvaluateFn | None) -> EvaluateFn | None:
        """The user's evaluation on the server, put on record."""
        return None if evaluate is None else self._evaluations.on_server(evaluate)

    def catch_up(self, evaluate: EvaluateFn | None) -> None:
        """Evaluate the last round where a crash came before that."""
        if evaluate is not None:
            self._evaluations.catch_up(evaluate, self.arrays)

    @property
    def _identities(self) -> Sequence[str]:
        return self._cohorts.roster.identities

    def close(self) -> None:
        """Let go of the ledger."""
        self._cohorts.close()

    def undo_open_round(self) -> None:
        """Forget a round that is not on record: it will be played again."""
        if self._posting is not None:
            self._cohorts.note_silent(self._posting.silent, round_=self.rounds_done + 1)
        self.train_config.go_back()
        saved = self._record.latest() if self.rounds_done > self._done_before else None
        images = () if saved is None else _of_strategy(saved)
        self._memory.go_back(images, source=str(self._settings.folder))

    def end_loop(self, rounds_asked: int) -> None:
        """The strategy's loop has ended as it should, though perhaps before its last round."""
        self._remember()
        self.own_rounds.end(rounds_asked)
        # Else the last round's record says all.
        if self.rounds_done > 0 and not self.own_rounds.as_flower_counts(rounds_asked):
            self._record.commit(None, self._saved(), clients=self._client_table())

    def _remember(self) -> None:
        """What the strategy has learned since the round was committed."""
        if self.rounds_done > 0:
            self._record.remember(self.rounds_done, self._memory.changes())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose a cohort, and let the strategy offer its work to these nodes alone.

        The round has its number since the first start; Flower's loop counts anew after each.
        """
        if has_own_start(self._strategy):  # which may have changed something after the evaluation
            self._remember()
        number = self.own_rounds.number(server_round)
        self.arrays, self.train_config.latest = arrays, config
        choice = self._choice = self._cohorts.choose(grid, partial(self._loss_question, grid))
        self.own_rounds.trains(server_round)
        chosen = choice.selection.clients.tolist()
        news.tell_choice(choice, self._settings.policy.name, self._identities)
        messages: list[Message] = []
        if chosen:
            view = OnlyThese(grid, choice.nodes)
            try:  # a list, for Flower reads it twice
                messages = list(self._own.configure_train(number, arrays, config, view))
            except PrivacyBudgetExhausted as spent:
                raise EndedError(f"the strategy's privacy ends the run: {spent}") from None
        self._forms = self._forms.of(self.arrays)
        self._posting, self._check = self._orders.post(choice, messages, self._forms)
        self._grid.expected = self._posting if messages else None
        return self._posting.messages

    def _loss_question(self, grid: Grid, node_of: Mapping[int, int]) -> LossQuestion:
        settings = self._settings
        return LossQuestion(
            self._strategy,
            grid,
            node_of,
            arrays=self.arrays,
            config=ConfigRecord({**self._evaluate_config, "server-round": self.rounds_done + 1}),
            timeout_seconds=settings.wait_seconds,
            believe=self._hearing.believed_losses,
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Learn from what came back, let the strategy aggregate the good, and put it on record."""
        number = self.rounds_done + 1
        choice, posting = self._choice, self._posting
        if choice is None or posting is None:
            raise CallOrderError(f"aggregate_train: round {number} was not configured")
        self._choice = self._posting = self._grid.expected = None
        found = sort_replies(replies, posting, self._check)
        self._cohorts.note_silent(posting.silent, round_=number)
        news.tell_replies(number, posting, found, self._identities)
        feedback = self._hearing.feedback(
            choice.selection,
            found.answers,
            lasted_seconds=posting.lasted_seconds,
            sent=self.arrays,
            sketch_size=self._settings.policy.wanted_sketch_size,
            seed=self._settings.seed,
        )
        news.tell_doubts(*self._hearing.new_doubts(), self._identities)
        arrays, metrics = None, None
        if found.answers:
            usable = set(feedback.clients[feedback.entered].tolist())
            arrays, metrics = self._own.aggregate_train(
                self.own_rounds.number(server_round), _for_strategy(found, usable)
            )
        if arrays is not None and not self._is_finite(arrays):
            warn(f"round {number}: what the strategy made is not finite: the model stays as it was")
            arrays = None
        if arrays is not None:
            self.arrays = arrays
        aggregated = 0 if arrays is None else int(np.count_nonzero(feedback.entered))
        self._commit(choice, feedback, found, metrics, aggregated=aggregated)
        return arrays, metrics

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """As the user configured it; what the strategy learns from it is on record, too."""
        metrics = self._evaluations.aggregate_evaluate(server_round, replies)
        self._remember()
        return metrics

    def _is_finite(self, arrays: ArrayRecord) -> bool:
        self._forms = self._forms.of(arrays)
        try:
            self._forms.check(arrays)
        except DataError:
            return False
        return True

    def _commit(
        self,
        choice: Choice,
        feedback: Feedback,
        found: RoundReplies,
        metrics: MetricRecord | None,
        *,
        aggregated: int,
    ) -> None:
        """The selector learns, and from then on the round counts."""
        cohorts, selector = self._cohorts, self._cohorts.selector
        assert selector is not None
        report = selector.observe(feedback)
        self.elapsed_seconds += feedback.lasted_seconds
        network = choice.network
        row = RoundRow(
            round=choice.selection.round,
            seconds=feedback.lasted_seconds,
            reward=np.nan,
            regret=np.nan,
            num_available=int(np.count_nonzero(choice.available)),
            num_completed=len(choice.selection.clients) - len(report.not_completed),
            num_refused=sum(report.refused.values()) + len(found.refused) + found.strangers.total(),
            clients=choice.selection.clients,
            learning=LearningRow(
                train_loss=_mean_loss(feedback),
                num_aggregated=aggregated,
                rejected=np.array(sorted(client for client, *_ in found.refused), dtype=np.int64),
            ),
            privacy=PrivacyRow() if cohorts.budget is None else cohorts.budget.standing(),
            scores=choice.scores,
            network=None
            if network is None
            else EdgeRow.of(network, choice.selection, feedback, None),
        )
        self._record.commit(row, self._saved(), clients=self._client_table(), metrics=metrics)
        self.rounds_done = row.round
        self._tell_not_kept()

    def end(self, reason: str) -> None:
        """Put on record that the run is over before its last round."""
        say(reason)
        self._record.commit(None, self._saved(), clients=self._client_table(), ending=reason)

    def _saved(self) -> Saved:
        cohorts, selector = self._cohorts, self._cohorts.selector
        assert selector is not None
        return Saved(
            round=selector.round - 1,
            elapsed_seconds=self.elapsed_seconds,
            selector=selector.to_bytes(),
            model=self.arrays,
            strategy=self._memory.capture(),
            budget=None if cohorts.budget is None else cohorts.budget.to_bytes(),
            parts={
                "roster": cohorts.roster.to_bytes(),
                "began_with": self._began_with,
                "own_rounds": self.own_rounds.to_plain(),
                "train_config": self.train_config.capture(),
                **self._hearing.to_parts(),
            },
        )

    def _client_table(self) -> dict[str, NDArray[Any]]:
        cohorts, selector = self._cohorts, self._cohorts.selector
        assert selector is not None
        edges = self._settings.edges
        return client_table(
            identities=cohorts.roster.identities,
            cohort_size=self._settings.cohort_size,
            latency_seconds=self._hearing.usual_seconds(cohorts.num_clients),
            groups=None if edges is None else edges.view(cohorts.roster).coverage.argmax(axis=1),
            num_edges=self._settings.num_edges,
            num_samples=selector.problem.num_samples,
            num_parameters=sum(int(np.prod(array.shape)) for array in self.arrays.values()),
        )


def _of_strategy(saved: Saved) -> list[bytes]:
    """All that is on record of what it remembers, the latest last."""
    return [image for image in (saved.strategy, saved.strategy_since) if image is not None]


def _for_strategy(found: RoundReplies, usable: Collection[int]) -> list[Message]:
    """Good replies, and errors in place of refused ones, for some strategies count failures."""
    return [
        *(answer.reply for answer in found.answers if answer.client in usable),
        *(reply for _, reply in found.failures),
        *(refused(reply, reason) for _, reply, reason in found.refused),
    ]


def _shapes(arrays: ArrayRecord) -> dict[str, tuple[int, ...]]:
    """Of all but the bytes of boosters, which grow."""
    return {
        name: () if array.dtype == "uint8" else tuple(array.shape) for name, array in arrays.items()
    }


def _mean_loss(feedback: Feedback) -> float:
    if "loss" not in feedback.signals:
        return np.nan
    return float(feedback.signals["loss"][feedback.answered].mean())
