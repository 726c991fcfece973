"""One federation while it runs: Flower's loop calls these four methods in the strategy's place."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedmuster.core.errors import CallOrderError, DataError, StateError
from fedmuster.core.records import Feedback
from fedmuster.federation import EdgeRow, RoundRow
from fedmuster.flower.answer_feedback import AnswerFeedback, output_bias_of
from fedmuster.flower.cohort_choice import Chooser, ChosenCohort, EndedError, NodeContacts
from fedmuster.flower.grid_views import OnlyThese, TimedGrid
from fedmuster.flower.muster_settings import Settings, least_nodes
from fedmuster.flower.reply_sorting import Forms, RoundReplies
from fedmuster.flower.round_messages import (
    EvaluateFn,
    LossQuestion,
    RoundMessages,
    free_nodes,
    prepare,
    usable_evaluations,
)
from fedmuster.flower.run_record import Evaluation, Record, Saved, client_table
from fedmuster.flower.strategy_loop import LoopRounds, Methods, has_own_start, say, some, warn
from fedmuster.flower.strategy_memory import ConfigMemory, StrategyMemory
from fedmuster.flower.wire import accuracy_of, loss_of
from fedmuster.privacy.budget import PrivacyRow
from fedmuster.training.trainer import LearningRow


class Session:
    """A strategy, its record and the cohorts that fedmuster chooses for it.

    Args:
        settings, strategy, record: of the run; the record is open.
        grid: the grid that Flower's loop sends through.
        arrays: the model to begin with, where nothing is on record.
        contacts: what earlier sessions of this process have asked nodes.
        in_step: whether the strategy is as it was when the last round was committed. Then nothing
            is put into it, because its user may have changed something since.
        evaluate_config: the user's config of evaluations, for policies that ask for losses.
        rounds_before: rounds of the strategy that the user has had from earlier starts. Where no
            more are on record, the user has had that model, and the model given back counts.
    """

    def __init__(
        self,
        settings: Settings,
        strategy: Strategy,
        record: Record,
        grid: TimedGrid,
        *,
        arrays: ArrayRecord,
        contacts: NodeContacts,
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
        self._chooser = Chooser(
            settings,
            least=least_nodes(strategy),
            run=record.run,
            ledger=record.cell.ledger(settings.folder),
            contacts=contacts,
        )
        self._feedback = AnswerFeedback()
        self._forms = Forms(arrays)
        self._choice: ChosenCohort | None = None
        self._output_bias: str | None = None
        self._messages: RoundMessages | None = None
        self.arrays = arrays
        """The global model after the last round."""
        self.elapsed_seconds = 0.0
        self.rounds_done = 0
        """Rounds on record."""
        self.loop_rounds = LoopRounds()
        """Rounds of the strategy's loop: as many, unless it trains several times in each."""
        self._began_with = _shapes(arrays)
        self.train_config = ConfigMemory()
        self._evaluate_config = evaluate_config or ConfigRecord()
        if record.saved is not None:
            try:
                self._load(record.saved, in_step=in_step)
            except BaseException:
                self.close()
                raise
        contacts.in_flight.forget_from(self._chooser.num_clients)
        self._done_before = self.rounds_done
        if self.loop_rounds.done == rounds_before > 0:
            self.arrays = arrays
        self._tell_not_kept()

    def _tell_not_kept(self) -> None:
        for name in self._memory.not_kept():
            warn(f"{name} of the strategy cannot be saved: after a crash it begins anew")

    def _load(self, saved: Saved, *, in_step: bool) -> None:
        source = str(self._settings.folder)
        parts = saved.parts
        self._chooser.load(parts["roster"], saved.selector, saved.budget, source=source)
        self._feedback = AnswerFeedback.from_parts(parts)
        for image in saved.strategy_images:
            self._memory.restore(image, source=source, in_step=in_step)
        self._began_with = parts["began_with"]
        # A strategy may give back other arrays than it was given.
        if _shapes(self.arrays) not in (self._began_with, _shapes(saved.model)):
            raise StateError(
                f"{source} holds the run of another model than initial_arrays: names or shapes of "
                "its arrays differ. Give Muster another folder, or start with that model"
            )
        self.loop_rounds = LoopRounds(parts["own_rounds"])
        self.train_config = ConfigMemory(parts["train_config"])
        self.arrays = saved.model
        self.elapsed_seconds = saved.elapsed_seconds
        self.rounds_done = saved.round

    @property
    def methods(self) -> Methods:
        """The methods that stand in place of the strategy's own."""
        return Methods.of(self)

    def close(self) -> None:
        """Close the ledger."""
        self._chooser.close()

    # --- Training: choose, ask, learn, commit ---------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose a cohort, and let the strategy offer its work to these nodes alone.

        The round has its number since the first start; Flower's loop counts anew at each start.
        """
        if has_own_start(self._strategy):  # which may have changed something after the evaluation
            self._remember()
        self._note_unanswered()
        number = self.loop_rounds.number(server_round)
        self.arrays, self.train_config.latest = arrays, config
        bias = self._output_bias = self._wanted_bias(arrays)
        num_classes = 0 if bias is None else arrays[bias].shape[0]
        present = self._chooser.gather(grid, num_classes=num_classes)
        question = LossQuestion(
            self._strategy,
            grid,
            present.node_of,
            arrays=arrays,
            config=ConfigRecord({**self._evaluate_config, "server-round": self.rounds_done + 1}),
            timeout_seconds=self._settings.wait_seconds,
            feedback=self._feedback,
        )
        choice = self._choice = self._chooser.choose(grid, present, question)
        self._note_unanswered()
        self.loop_rounds.trains(server_round)
        messages: list[Message] = []
        if choice.nodes:
            view = OnlyThese(grid, choice.nodes)
            try:  # a list, because Flower reads it twice
                messages = list(self._own.configure_train(number, arrays, config, view))
            except PrivacyBudgetExhausted as spent:
                raise EndedError(f"the strategy's privacy ends the run: {spent}") from None
        self._forms = self._forms.of(self.arrays)
        self._messages = prepare(
            messages,
            choice.selection,
            choice.nodes,
            choice.grant,
            choice.receipts,
            settings=self._settings,
            strategy=self._strategy,
            run=self._record.run,
            forms=self._forms,
        )
        self._grid.expected = self._messages if messages else None
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Learn from the replies, let the strategy aggregate the good ones, commit the round."""
        number = self.rounds_done + 1
        choice, messages = self._choice, self._messages
        if choice is None or messages is None:
            raise CallOrderError(f"aggregate_train: round {number} was not configured")
        self._choice = self._messages = self._grid.expected = None
        found = messages.sort(replies)
        self._chooser.note_silent(messages.silent, round_=number)
        self._chooser.note_receipts(found.log_sizes)
        messages.tell(number, found, self._chooser.roster.identities)
        feedback = self._feedback.feedback(
            choice.selection,
            found.answers,
            lasted_seconds=messages.lasted_seconds,
            sent=self.arrays,
            sketch_size=self._settings.policy.wanted_sketch_size,
            output_bias=self._output_bias,
            seed=self._settings.seed,
            shared_workers=self._grid.is_local,
        )
        self._feedback.tell_doubts(self._chooser.roster.identities)
        arrays, metrics = None, None
        if found.answers:
            usable = set(feedback.clients[feedback.entered].tolist())
            arrays, metrics = self._own.aggregate_train(
                self.loop_rounds.number(server_round), found.for_strategy(usable)
            )
        if arrays is not None and not self._is_finite(arrays):
            warn(f"round {number}: what the strategy made is not finite: the model stays as it was")
            arrays = None
        if arrays is not None:
            self.arrays = arrays
        aggregated = 0 if arrays is None else int(np.count_nonzero(feedback.entered))
        self._commit(choice, feedback, found, metrics, aggregated=aggregated)
        return arrays, metrics

    def _wanted_bias(self, arrays: ArrayRecord) -> str | None:
        """The name of the output layer's biases, if the policy looks at them."""
        policy = self._settings.policy
        if not policy.wants_output_bias:
            return None
        name = output_bias_of(arrays)
        if name is None and self.rounds_done == 0:
            warn(
                f"{policy.name} looks at the biases of the output layer, and the model does not "
                "end in a matrix and its biases: the policy does without"
            )
        return name

    def _is_finite(self, arrays: ArrayRecord) -> bool:
        self._forms = self._forms.of(arrays)
        try:
            self._forms.check(arrays)
        except DataError:
            return False
        return True

    def _commit(
        self,
        choice: ChosenCohort,
        feedback: Feedback,
        found: RoundReplies,
        metrics: MetricRecord | None,
        *,
        aggregated: int,
    ) -> None:
        """Let the selector learn; from then on the round counts."""
        chooser, selector = self._chooser, self._chooser.selector
        assert selector is not None
        report = selector.observe(feedback)
        self.elapsed_seconds += feedback.lasted_seconds
        losses, edges = feedback.signals.get("loss"), None
        if choice.network is not None:
            edges = EdgeRow.of(choice.network, choice.selection, feedback, None)
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
                train_loss=np.nan if losses is None else float(losses[feedback.answered].mean()),
                num_aggregated=aggregated,
                rejected=np.array(sorted(client for client, *_ in found.refused), dtype=np.int64),
            ),
            privacy=PrivacyRow() if chooser.budget is None else chooser.budget.standing(),
            scores=choice.scores,
            network=edges,
        )
        self._record.commit(row, self._saved(), clients=self._client_table(), metrics=metrics)
        self.rounds_done = row.round
        self._tell_not_kept()

    # --- Evaluation -----------------------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose among all nodes that are there and free."""
        number = self.loop_rounds.number(server_round)
        wait = self._settings.wait_seconds
        free = free_nodes(grid, self._chooser, self._strategy, round_=number, wait_seconds=wait)
        if free is None:
            return []
        view = OnlyThese(grid, free)
        return list(self._own.configure_evaluate(number, arrays, config, view))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the strategy aggregate usable evaluations, and record what it makes of them."""
        self._note_unanswered()
        usable = usable_evaluations(replies, self._strategy, self._chooser)
        metrics = self._own.aggregate_evaluate(self.loop_rounds.number(server_round), usable)
        self._note_evaluation("evaluate_metrics_clientapp", metrics)
        self._remember()
        return metrics

    def on_server(self, evaluate: EvaluateFn | None) -> EvaluateFn | None:
        """The user's evaluation on the server, with true round numbers and put on record."""
        if evaluate is None:
            return None

        def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate(self.loop_rounds.number(server_round), arrays)
            self._note_evaluation("evaluate_metrics_serverapp", metrics)
            return metrics

        return evaluate_fn

    def catch_up(self, evaluate: EvaluateFn | None) -> None:
        """Evaluate the last round on the server where a crash came before that."""
        evaluate_fn = self.on_server(evaluate)
        noted = self._record.result(self.arrays).evaluate_metrics_serverapp
        if evaluate_fn is not None and self.rounds_done not in noted:
            evaluate_fn(0, self.arrays)

    def _note_evaluation(self, by: Evaluation, metrics: MetricRecord | None) -> None:
        if isinstance(metrics, Mapping):  # Flower lets an app return anything
            loss, accuracy = loss_of(metrics), accuracy_of(metrics)
            self._record.evaluated(self.rounds_done, by, metrics, loss=loss, accuracy=accuracy)

    def _note_unanswered(self) -> None:
        """Count the clients of unanswered evaluations and questions as busy."""
        unanswered = self._grid.take_unanswered()
        if unanswered:
            names = [self._chooser.name_of_node(m.metadata.dst_node_id) for m in unanswered]
            say(
                f"round {self.rounds_done}: {len(names)} nodes have not evaluated in time, and are "
                f"not asked again until they have: {some(names)}"
            )
            self._chooser.note_silent(unanswered, round_=self.rounds_done)

    # --- The end of a loop, and what is saved ---------------------------------------------------

    def undo_open_round(self) -> None:
        """Forget a round that is not on record: it will be played again."""
        self._note_unanswered()
        if self._messages is not None:
            self._chooser.note_silent(self._messages.silent, round_=self.rounds_done + 1)
        self.train_config.go_back()
        saved = self._record.latest() if self.rounds_done > self._done_before else None
        images = () if saved is None else saved.strategy_images
        self._memory.go_back(images, source=str(self._settings.folder))

    def end_loop(self, rounds_asked: int) -> None:
        """Note that the strategy's loop has ended, perhaps before its last round."""
        self._note_unanswered()
        self._remember()
        self.loop_rounds.end(rounds_asked)
        # Otherwise the last round's record says all.
        if self.rounds_done > 0 and not self.loop_rounds.as_flower_counts(rounds_asked):
            self._record.commit(None, self._saved(), clients=self._client_table())

    def end(self, reason: str) -> None:
        """Put on record that the run is over before its last round."""
        say(reason)
        self._record.commit(None, self._saved(), clients=self._client_table(), ending=reason)

    def _remember(self) -> None:
        """Record what the strategy has learned since the round was committed."""
        if self.rounds_done > 0:
            self._record.remember(self.rounds_done, self._memory.changes())

    def _saved(self) -> Saved:
        chooser, selector = self._chooser, self._chooser.selector
        assert selector is not None
        return Saved(
            round=selector.round - 1,
            elapsed_seconds=self.elapsed_seconds,
            selector=selector.to_bytes(),
            model=self.arrays,
            strategy=self._memory.capture(),
            budget=None if chooser.budget is None else chooser.budget.to_bytes(),
            parts={
                "roster": chooser.roster.to_bytes(),
                "began_with": self._began_with,
                "own_rounds": self.loop_rounds.to_plain(),
                "train_config": self.train_config.capture(),
                **self._feedback.to_parts(),
            },
        )

    def _client_table(self) -> dict[str, NDArray[Any]]:
        chooser, selector = self._chooser, self._chooser.selector
        assert selector is not None
        edges = self._settings.edges
        return client_table(
            identities=chooser.roster.identities,
            cohort_size=self._settings.cohort_size,
            latency_seconds=self._feedback.usual_seconds(chooser.num_clients),
            groups=None if edges is None else edges.view(chooser.roster).coverage.argmax(axis=1),
            num_edges=self._settings.num_edges,
            num_samples=selector.problem.num_samples,
            num_parameters=sum(int(np.prod(array.shape)) for array in self.arrays.values()),
        )


def _shapes(arrays: ArrayRecord) -> dict[str, tuple[int, ...]]:
    """The shapes of all arrays but the bytes of boosters, which grow."""
    return {
        name: () if array.dtype == "uint8" else tuple(array.shape) for name, array in arrays.items()
    }
