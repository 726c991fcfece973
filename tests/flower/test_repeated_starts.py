"""Apps that start the same Muster again and again, and starts that fail."""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedAvgM, Result, Strategy
from tests.flower.tiny_app import client_app, federation, model, nodes, quick, trained

from fedmuster.core.errors import ConfigError, InUseError
from fedmuster.experiments.journal import Journal, JournalReader
from fedmuster.flower import Muster
from fedmuster.flower.in_process import InProcessGrid


def start(muster: Muster, grid: InProcessGrid, rounds: int = 1) -> Result:
    return muster.start(grid=grid, initial_arrays=model(), num_rounds=rounds, timeout=10.0)


class Counting(FedAvg):
    """Remembers something in the first round only, and something in each in which it learns."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.first: int | None = None
        self.learned = 0

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        self.first = server_round if self.first is None else self.first
        self.learned += 1
        return super().aggregate_train(server_round, replies)


def test_what_a_strategy_learned_in_an_earlier_start_survives_a_crash(tmp_path: Path) -> None:
    failing: list[bool] = []

    def train(message: Message, context: Context) -> Message:
        if failing:
            raise RuntimeError("out of memory")
        return trained(message, context)

    muster, grid = quick(tmp_path, Counting()), federation(train=train)
    start(muster, grid)
    start(muster, grid)
    failing.append(True)
    start(muster, grid)  # in which nothing changes
    failing.clear()
    after_crash = Counting()
    start(quick(tmp_path, after_crash), grid, rounds=4)
    assert (after_crash.first, after_crash.learned) == (1, 3)


def test_a_strategy_forgets_what_it_learned_in_a_round_that_did_not_count(tmp_path: Path) -> None:
    class Stumbling(FedAvgM):
        stumbled = False

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            made = super().aggregate_train(server_round, replies)
            if server_round == 2 and not Stumbling.stumbled:
                Stumbling.stumbled = True
                raise RuntimeError("no space left")
            return made

    # Everybody trains in each round, so that all runs are alike.
    muster, grid = quick(tmp_path / "stumbled", Stumbling(), cohort_size=6), federation()
    with pytest.raises(RuntimeError, match="no space left"):
        start(muster, grid, rounds=3)
    stumbled = start(muster, grid, rounds=3)
    smooth = start(quick(tmp_path / "smooth", FedAvgM(), cohort_size=6), federation(), rounds=3)
    assert stumbled.arrays["w"].numpy().tolist() == smooth.arrays["w"].numpy().tolist()


def test_a_start_that_is_refused_does_not_count_its_rounds(tmp_path: Path) -> None:
    muster, grid = quick(tmp_path, wait_seconds=0.1), federation()
    with Journal(tmp_path), pytest.raises(InUseError):
        start(muster, grid, rounds=3)
    start(muster, grid, rounds=3)
    assert len(JournalReader(tmp_path)) == 3


def test_only_the_first_start_waits_for_all_nodes_and_asks_who_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    class Noting(InProcessGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            asked.extend("question" for m in messages if "fedmuster" in m.content)
            return super().push_messages(messages)

    grid = Noting(client_app(), nodes("abc"))
    muster = quick(tmp_path, min_nodes=4, wait_seconds=0.2)
    with caplog.at_level(logging.INFO, "flwr"):
        for _ in range(3):
            start(muster, grid)
    assert caplog.text.count("waiting for nodes: 3 of 4") == 1
    assert asked == ["question"] * 3
    assert [len(cohort) for cohort in JournalReader(tmp_path).cohorts] == [3, 3, 3]


def test_a_node_that_has_not_said_who_it_is_does_not_hold_up_evaluation(tmp_path: Path) -> None:
    grid = federation()
    grid.nodes[5].silent = True
    muster = quick(tmp_path, deadline_seconds=30.0)
    began = time.monotonic()
    result = muster.start(grid=grid, initial_arrays=model(), num_rounds=3)
    assert time.monotonic() - began < 30.0  # an evaluation that waits for it takes as long
    journal = JournalReader(tmp_path)
    assert all(5 not in cohort for cohort in journal.cohorts)
    assert set(result.evaluate_metrics_clientapp) == {1, 2, 3}
    assert len(journal.clients["identity"]) == 5


def test_a_start_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    class Stumbling(FedAvg):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            if server_round == 2 and not stumbled:
                stumbled.append(server_round)
                raise RuntimeError("out of memory")
            return super().aggregate_train(server_round, replies)

    stumbled: list[int] = []
    muster, grid = quick(tmp_path, Stumbling()), federation()
    with pytest.raises(RuntimeError, match="out of memory"):
        start(muster, grid, rounds=3)
    assert set(start(muster, grid, rounds=3).train_metrics_clientapp) == {1, 2, 3}
    assert len(JournalReader(tmp_path)) == 3


def test_who_is_busy_in_one_start_is_left_alone_in_the_next(tmp_path: Path) -> None:
    muster, grid = (
        quick(tmp_path, FedAvg(fraction_evaluate=0.0), deadline_seconds=0.3),
        federation("abc"),
    )
    start(muster, grid)
    grid.nodes[0].delay_seconds = 30.0
    for _ in range(3):
        start(muster, grid)
    cohorts = [cohort.tolist() for cohort in JournalReader(tmp_path).cohorts]
    assert cohorts == [[0, 1, 2], [0, 1, 2], [1, 2], [1, 2]]


def test_another_grid_has_other_nodes_under_the_same_ids(tmp_path: Path) -> None:
    muster = quick(tmp_path)
    start(muster, federation("abc"))
    start(muster, federation("xyz"))
    assert JournalReader(tmp_path).clients["identity"].tolist() == list("abcxyz")


class Scheduled(FedAvg):
    """Halves its rate in each round, and that of its config."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.rate = 1.0
        self.log: list[float] = []
        self.rates: list[tuple[float, float]] = []
        self.fails_in: int | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.rate /= 2
        rate = config["rate"]
        assert isinstance(rate, float)
        config["rate"] = rate / 2
        self.rates.append((self.rate, rate / 2))
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        if server_round == self.fails_in:
            self.fails_in = None
            self.made_meanwhile = True
            raise RuntimeError("the real error")
        return super().aggregate_train(server_round, replies)


def scheduled(muster: Muster, grid: InProcessGrid, rounds: int, config: ConfigRecord) -> None:
    muster.start(grid, model(), rounds, timeout=10.0, train_config=config)


def test_what_the_app_sets_between_starts_counts(tmp_path: Path) -> None:
    strategy, grid = Scheduled(), federation()
    muster, log, config = quick(tmp_path, strategy), strategy.log, ConfigRecord({"rate": 1.0})
    scheduled(muster, grid, 2, config)
    muster.rate = 1.0
    scheduled(muster, grid, 2, config)
    assert [rate for rate, _ in strategy.rates] == [0.5, 0.25, 0.5, 0.25]
    assert strategy.log is log  # to which the app may hold a reference


@pytest.mark.parametrize("same_config", [True, False])
def test_a_schedule_goes_on_where_a_start_is_tried_again(tmp_path: Path, same_config: bool) -> None:
    strategy, grid, config = Scheduled(), federation(), ConfigRecord({"rate": 1.0})
    strategy.fails_in = 3
    muster = quick(tmp_path, strategy)
    with pytest.raises(RuntimeError, match="the real error"):
        scheduled(muster, grid, 4, config)
    assert not hasattr(strategy, "made_meanwhile")
    strategy.fails_in = None
    scheduled(muster, grid, 4, config if same_config else ConfigRecord({"rate": 1.0}))
    assert strategy.rates == [(0.5, 0.5), (0.25, 0.25), (0.125, 0.125), (0.0625, 0.0625)]


def test_an_error_is_told_though_nothing_can_be_undone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Switching(Scheduled):
        def __init__(self) -> None:
            super().__init__()
            self.inner: Strategy = FedAvg()

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            if server_round == 2:
                self.inner = FedAvgM()
                raise RuntimeError("the real error")
            return super().aggregate_train(server_round, replies)

    with caplog.at_level(logging.INFO, "flwr"), pytest.raises(RuntimeError, match="the real error"):
        scheduled(quick(tmp_path, Switching()), federation(), 3, ConfigRecord({"rate": 1.0}))
    assert "cannot be undone" in caplog.text


def test_settings_that_are_changed_are_checked_before_anybody_is_asked(tmp_path: Path) -> None:
    muster = quick(tmp_path)
    muster.fraction_train = 0.5
    with pytest.raises(ConfigError, match="would choose again"):
        start(muster, federation())
    assert not (tmp_path / "journal.sqlite").exists()
