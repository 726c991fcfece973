"""Apps that start the same Muster again and again, and starts that fail."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.serverapp.strategy import FedAvg, FedAvgM, Result
from tests.adapters.tiny_app import client_app, federation, model, nodes, quick, trained

from fedmuster.adapters.flower import Muster
from fedmuster.adapters.flower.in_process import InProcessGrid
from fedmuster.core.errors import InUseError
from fedmuster.experiments.journal import Journal, JournalReader


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
    result = muster.start(grid=grid, initial_arrays=model(), num_rounds=3)
    journal = JournalReader(tmp_path)
    assert np.all(journal.columns["seconds"] < 30.0)
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
