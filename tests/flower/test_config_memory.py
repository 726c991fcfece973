"""A training config that a strategy changes as it goes is the same after a crash."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedProx
from tests.flower.tiny_app import federation, model

from fedmuster.flower import Muster
from fedmuster.flower.strategy_memory import ConfigMemory


class Halving(FedAvg):
    """A schedule as in Flower's own examples: the config is changed in place."""

    def __init__(self, note: Callable[[float], None]) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.note = note  # not a list of its own, which would be on record too

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        rate = config["lr"]
        assert isinstance(rate, float)
        config["lr"] = rate / 2
        self.note(rate / 2)
        return super().configure_train(server_round, arrays, config, grid)


def rates(folder: Path, rounds: int, **config: float) -> list[float]:
    """Those of the rounds that are left."""
    seen: list[float] = []
    strategy = Halving(seen.append)
    muster = Muster(strategy, policy="random", cohort_size=2, folder=folder, poll_seconds=0.001)
    muster.start(
        grid=federation("ab"),
        initial_arrays=model(),
        num_rounds=rounds,
        timeout=10.0,
        train_config=ConfigRecord({**config}),
    )
    return seen


def test_a_schedule_goes_on_after_a_crash(tmp_path: Path) -> None:
    assert rates(tmp_path, 2, lr=8.0) == [4.0, 2.0]
    assert rates(tmp_path, 3, lr=8.0) == [1.0]
    assert rates(tmp_path, 5, lr=8.0) == [0.5, 0.25]  # and after a second one


def test_a_schedule_goes_on_where_rounds_are_started_one_by_one(tmp_path: Path) -> None:
    halved: list[float] = []
    for times in (3, 5):  # the second time after a crash
        config = ConfigRecord({"lr": 8.0})
        muster = Muster(
            Halving(halved.append),
            policy="random",
            cohort_size=2,
            folder=tmp_path,
            poll_seconds=0.001,
        )
        for _ in range(times):
            muster.start(federation("ab"), model(), 1, timeout=10.0, train_config=config)
    assert halved == [4.0, 2.0, 1.0, 0.5, 0.25]


def test_what_the_user_changes_counts(tmp_path: Path) -> None:
    assert rates(tmp_path, 1, lr=8.0, epochs=1.0) == [4.0]
    assert rates(tmp_path, 2, lr=80.0, epochs=1.0) == [40.0]
    assert rates(tmp_path, 3, lr=80.0, epochs=2.0) == [20.0]  # another key: the schedule goes on


def test_what_the_user_or_the_strategy_takes_out_stays_out() -> None:
    memory = ConfigMemory()
    config = memory.go_on_with(ConfigRecord({"lr": 8.0, "warmup": 3, "momentum": 0.9}))
    assert config is not None
    config["lr"] = 4.0
    del config["warmup"]
    memory.latest = config
    same = ConfigRecord({"lr": 8.0, "warmup": 3, "momentum": 0.9})
    assert dict(ConfigMemory(memory.capture()).go_on_with(same) or {}) == {
        "lr": 4.0,
        "momentum": 0.9,
    }
    less = ConfigRecord({"lr": 8.0})
    assert dict(ConfigMemory(memory.capture()).go_on_with(less) or {}) == {"lr": 4.0}
    assert dict(ConfigMemory(memory.capture()).go_on_with(None) or {}) == {}


def test_a_list_that_grows_in_place_goes_on() -> None:
    memory, seen = ConfigMemory(), [1, 2]
    config = memory.go_on_with(ConfigRecord({"seen": seen}))
    assert config is not None
    seen.append(3)
    memory.latest = config
    again = ConfigMemory(memory.capture()).go_on_with(ConfigRecord({"seen": [1, 2]}))
    assert dict(again or {}) == {"seen": [1, 2, 3]}


def test_nothing_on_record_leaves_the_config_to_the_user() -> None:
    config = ConfigRecord({"lr": 0.1})
    assert ConfigMemory().go_on_with(config) is config
    assert ConfigMemory().go_on_with(None) is None


@pytest.mark.parametrize("value", [3, 0.5, "cosine", b"\x00", True, [1, 2], ["a"]])
def test_values_of_all_kinds_are_remembered(value: Any) -> None:
    memory = ConfigMemory()
    config = memory.go_on_with(ConfigRecord({"given": 1}))
    assert config is not None
    config["added"] = value
    memory.latest = config
    again = ConfigMemory(memory.capture()).go_on_with(ConfigRecord({"given": 1, "new": 2}))
    assert again is not None
    assert dict(again) == {"given": 1, "added": value, "new": 2}


def test_what_a_strategy_sets_itself_it_sets_again(tmp_path: Path) -> None:
    sent: list[object] = []

    class Noting(FedProx):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            messages = list(super().configure_train(server_round, arrays, config, grid))
            records = messages[0].content.config_records["config"]
            sent.append((records["server-round"], records["proximal-mu"]))
            return messages

    for rounds, mu in ((1, 0.1), (2, 0.5)):
        muster = Muster(
            Noting(proximal_mu=mu, fraction_evaluate=0.0),
            policy="random",
            cohort_size=2,
            folder=tmp_path,
            poll_seconds=0.001,
        )
        muster.start(grid=federation("ab"), initial_arrays=model(), num_rounds=rounds, timeout=10.0)
    assert sent == [(1, 0.1), (2, 0.5)]
