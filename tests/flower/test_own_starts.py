"""Strategies whose loop is their users' own, and what apps do with a Muster as with a strategy."""

import logging
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from tests.flower.tiny_app import federation, model, nodes, quick, trained

from fedmuster.experiments.journal import JournalReader
from fedmuster.flower import ReportingMod
from fedmuster.flower.in_process import InProcessGrid


class Killed(BaseException):
    """The ServerApp dies here."""


class BestOf(FedAvg):
    """Returns more than Flower does, and another model than the last."""

    def start(self, *args: Any, **kwargs: Any) -> Any:
        result = super().start(*args, **kwargs)
        result.arrays = model(7.0)
        return result, "more"


def test_what_a_start_of_ones_own_returns_is_returned(tmp_path: Path) -> None:
    returned: Any = quick(tmp_path, BestOf()).start(federation(), model(), 3, timeout=10.0)
    result, more = returned
    assert more == "more"
    assert result.arrays["w"].numpy().tolist() == [7.0] * 3
    assert set(result.train_metrics_clientapp) == {1, 2, 3}


def test_after_a_crash_it_has_the_metrics_of_all_rounds(tmp_path: Path) -> None:
    class Plain(FedAvg):
        def start(self, *args: Any, **kwargs: Any) -> Result:
            return super().start(*args, **kwargs)

    quick(tmp_path, Plain()).start(federation(), model(), 2, timeout=10.0)
    result = quick(tmp_path, Plain()).start(federation(), model(), 3, timeout=10.0)
    assert set(result.train_metrics_clientapp) == {1, 2, 3}
    assert set(result.evaluate_metrics_clientapp) == {1, 2, 3}


class TwoPhases(FedAvg):
    """Trains twice in each round, as its own loop counts them; dies at a training of choice.

    It notes by which number each training goes, in a list that no record brings back.
    """

    def __init__(self, numbers: list[int], dies_at: int | None = None) -> None:
        super().__init__(fraction_evaluate=0.0)

        def note(number: int) -> None:
            if len(numbers) == dies_at:
                raise Killed
            numbers.append(number)

        self.note = note

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 10.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Any = None,
    ) -> Result:
        arrays = initial_arrays
        for number in [n for n in range(1, num_rounds + 1) for _ in "ab"]:
            messages = self.configure_train(number, arrays, ConfigRecord(), grid)
            arrays = self.aggregate_train(number, grid.send_and_receive(messages))[0] or arrays
        return Result(arrays=arrays)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.note(server_round)
        return super().configure_train(server_round, arrays, config, grid)


def test_a_loop_may_train_twice_a_round(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    numbers: list[int] = []
    with caplog.at_level(logging.INFO, "flwr"):
        quick(tmp_path, TwoPhases(numbers)).start(federation(), model(), 3)
    assert numbers == [1, 1, 2, 2, 3, 3]
    assert caplog.text.count("trains more than once a round") == 1
    assert len(JournalReader(tmp_path)) == 6
    done = quick(tmp_path, TwoPhases(numbers)).start(federation(), model(), 3)
    assert numbers == [1, 1, 2, 2, 3, 3]  # all is done
    assert set(done.train_metrics_clientapp) == set(range(1, 7))
    quick(tmp_path, TwoPhases(numbers)).start(federation(), model(), 4)
    assert numbers[6:] == [4, 4]


@pytest.mark.parametrize(("dies_at", "then"), [(3, [2, 2, 3, 3]), (4, [2, 2, 3, 3]), (5, [3, 3])])
def test_a_round_of_several_trainings_that_was_cut_short_is_begun_anew(
    tmp_path: Path, dies_at: int, then: list[int]
) -> None:
    """Also where it was not: which is the last of a round, only the loop knows."""
    with pytest.raises(Killed):
        quick(tmp_path, TwoPhases([], dies_at)).start(federation(), model(), 3)
    assert len(JournalReader(tmp_path)) == dies_at
    numbers: list[int] = []
    again = TwoPhases(numbers)
    quick(tmp_path, again).start(federation(), model(), 3)
    assert numbers == then


class Watchful(FedAvg):
    """Learns from evaluations, which come after a round was committed."""

    def __init__(self, dies_in: int | None = None) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.dies_in = dies_in

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        self.seen.append(server_round)
        return super().aggregate_evaluate(server_round, replies)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round == self.dies_in:
            raise Killed
        return super().configure_train(server_round, arrays, config, grid)


def test_what_a_strategy_learns_from_evaluations_survives_a_crash(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        quick(tmp_path, Watchful(dies_in=3)).start(federation(), model(), 4, timeout=10.0)
    again = Watchful()
    quick(tmp_path, again).start(federation(), model(), 4, timeout=10.0)
    assert again.seen == [1, 2, 3, 4]


def test_what_is_set_on_muster_is_set_on_the_strategy(tmp_path: Path) -> None:
    strategy = FedAvg(fraction_evaluate=0.0)
    muster = quick(tmp_path, strategy)
    grid = federation()
    assert muster.start(grid, model(), 1, timeout=10.0).evaluate_metrics_clientapp == {}
    muster.fraction_evaluate = 1.0
    assert strategy.fraction_evaluate == 1.0
    assert set(muster.start(grid, model(), 1, timeout=10.0).evaluate_metrics_clientapp) == {1}


def test_any_number_of_rounds_that_flower_takes_is_taken(tmp_path: Path) -> None:
    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": 0.5})

    muster, grid = quick(tmp_path, FedAvg()), federation()
    nobody = muster.start(grid, model(), 0, timeout=10.0, evaluate_fn=evaluate)
    assert set(nobody.evaluate_metrics_serverapp) == {0}
    assert not (tmp_path / "journal.sqlite").exists()
    two: Any = np.int64(2)
    assert set(muster.start(grid, model(), two, timeout=10.0).train_metrics_clientapp) == {1, 2}


def test_two_musters_of_an_app_in_one_folder_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = federation()
    with caplog.at_level(logging.INFO, "flwr"):
        first = quick(tmp_path, FedAvg())
        first.start(grid, model(), 2, timeout=10.0)
        assert "another Muster" not in caplog.text
        quick(tmp_path, FedAvg()).start(grid, model(), 2, timeout=10.0)
    assert "give it a folder of its own" in caplog.text


def test_a_loss_that_nobody_can_measure_stays_what_it_is(tmp_path: Path) -> None:
    """One that is not finite among others costs its sender; of all of them it is the truth."""
    infinite = set("abcdef")

    def evaluate(message: Message, context: Context) -> Message:
        loss = math.inf if context.node_config["client-id"] in infinite else 1.0
        metrics = MetricRecord({"eval_loss": loss, "num-examples": 1})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    app = ClientApp(mods=[ReportingMod()])
    app.train()(trained)
    app.evaluate()(evaluate)
    muster, grid = quick(tmp_path, FedAvg()), InProcessGrid(app, nodes("abcdef"))
    result = muster.start(grid, model(), 1, timeout=10.0)
    assert result.evaluate_metrics_clientapp[1]["eval_loss"] == math.inf
    infinite -= set("abcde")
    result = muster.start(grid, model(), 1, timeout=10.0)
    assert result.evaluate_metrics_clientapp[1]["eval_loss"] == 1.0


class Batches(FedAvg):
    """Sends a round in parts, and stops when it likes."""

    def __init__(self, most_rounds: int) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.most_rounds = most_rounds

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 10.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Any = None,
    ) -> Result:
        arrays = initial_arrays
        for number in range(1, min(self.most_rounds, num_rounds) + 1):
            messages = list(self.configure_train(number, arrays, ConfigRecord(), grid))
            replies: list[Message] = []
            for place in range(0, len(messages), 2):
                replies += grid.send_and_receive(messages[place : place + 2], timeout=timeout)
            arrays = self.aggregate_train(number, replies)[0] or arrays
        return Result(arrays=arrays)


def test_a_round_may_be_sent_in_parts(tmp_path: Path) -> None:
    quick(tmp_path, Batches(2)).start(federation(), model(), 2)
    journal = JournalReader(tmp_path)
    assert journal.columns["num_completed"].tolist() == [3, 3]
    assert journal.columns["num_refused"].tolist() == [0, 0]


def test_a_loop_may_end_before_its_last_round(tmp_path: Path) -> None:
    muster, grid = quick(tmp_path, Batches(2)), federation()
    muster.start(grid, model(), 5)
    again = quick(tmp_path, Batches(2)).start(grid, model(), 5)
    assert len(JournalReader(tmp_path)) == 2  # it has ended, and does not go on
    assert set(again.train_metrics_clientapp) == {1, 2}
    result = muster.start(grid, model(9.0), 5)  # but it may be started again
    assert len(JournalReader(tmp_path)) == 4
    assert result.arrays["w"].numpy().tolist() == [3.0] * 3  # halfway to 1, twice


def test_what_is_taken_back_after_the_round_is_not_on_record(tmp_path: Path) -> None:
    class Flagging(FedAvg):
        def __init__(self) -> None:
            super().__init__()
            self.evaluating = 0

        def start(self, *args: Any, **kwargs: Any) -> Result:
            result = super().start(*args, **kwargs)
            self.evaluating = 0
            return result

        def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
            self.evaluating = 1
            return super().aggregate_evaluate(server_round, replies)

    quick(tmp_path, Flagging()).start(federation(), model(), 1, timeout=10.0)
    again = Flagging()
    quick(tmp_path, again).start(federation(), model(), 1, timeout=10.0)
    assert again.evaluating == 0


def test_methods_that_are_set_on_muster_are_the_strategys(tmp_path: Path) -> None:
    called: list[int] = []
    muster = quick(tmp_path, FedAvg(fraction_evaluate=0.0))
    own = muster.strategy.aggregate_train

    def aggregate(server_round: int, replies: Iterable[Message]) -> Any:
        called.append(server_round)
        return own(server_round, replies)

    name = "aggregate_train"
    setattr(muster, name, aggregate)
    muster.start(federation(), model(), 2, timeout=10.0)
    assert called == [1, 2]
