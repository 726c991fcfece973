"""The reporting mod around a real ClientApp: who it is, how long it took, what training gained."""

import logging
import time
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmuster.core.errors import ConfigError
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.reporting_mod import ReportingMod
from fedmuster.flower.wire import RECORD, Ask, Facts, PrivacyGrant, Report, question
from fedmuster.privacy.mechanisms import Laplace

SEEN = list[tuple[str, list[str]]]


def quick_app(reporting: ReportingMod, seen: SEEN, *, marked: bool = False) -> ClientApp:
    """An app whose weight grows by one in training, and is its accuracy."""
    app = ClientApp(mods=[reporting])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        seen.append((message.metadata.message_type, sorted(message.content)))
        (weight,) = message.content.array_records["arrays"].to_numpy_ndarrays()
        if weight[0] < 0:
            raise ValueError("a negative weight")
        time.sleep(float(context.node_config.get("seconds", 0.0)))
        content = RecordDict(
            {
                "arrays": ArrayRecord([weight + 1]),
                "metrics": MetricRecord({"num-examples": 8, "train_loss": 0.5}),
            }
        )
        return Message(content, reply_to=message)

    def evaluate(message: Message, context: Context) -> Message:
        seen.append((message.metadata.message_type, sorted(message.content)))
        (weight,) = message.content.array_records["arrays"].to_numpy_ndarrays()
        if weight[0] > 90:
            raise RuntimeError("too heavy")
        metrics = MetricRecord({"eval_acc": float(weight[0]), "num-examples": 2})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    app.evaluate()(reporting.evaluates(evaluate) if marked else evaluate)
    return app


def grid_of(app: ClientApp, **config: Any) -> InProcessGrid:
    return InProcessGrid(app, [Node(1, config)])


def send(grid: InProcessGrid, kind: str, weight: float, ask: Ask | None = None) -> Message:
    content = RecordDict(
        {"arrays": ArrayRecord([np.array([weight])]), "config": ConfigRecord({"lr": 0.1})}
    )
    if ask is not None:
        ask.into(content)
    (reply,) = grid.send_and_receive([Message(content, 1, kind)])
    return reply


def facts_of(grid: InProcessGrid, kind: str = "train") -> Facts | None:
    (reply,) = grid.send_and_receive([question(1, kind=kind)])
    assert not reply.has_error(), reply.error
    assert list(reply.content) == [RECORD]
    return Facts.of(reply.content)


def report_of(reply: Message) -> Report:
    report = Report.of(reply.content)
    assert report is not None
    return report


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        ({}, Facts()),
        ({"partition-id": 3, "num-partitions": 9}, Facts(client_id="partition-3")),
        ({"client-id": "ward-7", "partition-id": 3}, Facts(client_id="ward-7")),
        ({"client-id": 12}, Facts(client_id="12")),
        ({"edge": "west"}, Facts(edges=("west",))),
        ({"edge": " west, east,,"}, Facts(edges=("west", "east"))),
    ],
)
def test_it_says_who_the_client_is(config: dict[str, Any], facts: Facts) -> None:
    seen: SEEN = []
    assert facts_of(grid_of(quick_app(ReportingMod(), seen), **config)) == facts
    assert seen == []  # the app was not bothered


@pytest.mark.parametrize("kind", ["train", "evaluate", "query"])
def test_it_says_so_whatever_kind_of_message_asks(kind: str) -> None:
    seen: SEEN = []
    app = quick_app(ReportingMod(), seen)
    app.query()(lambda message, context: Message(RecordDict(), reply_to=message))
    assert facts_of(grid_of(app, **{"client-id": "ann"}), kind) == Facts(client_id="ann")
    assert seen == []


def test_keys_and_sample_counts_can_be_chosen() -> None:
    def count_rows(context: Context) -> int:
        return int(context.node_config["rows"])

    mod = ReportingMod(client_id_key="name", edge_key="site", num_samples=count_rows)
    grid = grid_of(quick_app(mod, []), name="ann", site="east", rows=40)
    assert facts_of(grid) == Facts(client_id="ann", edges=("east",), num_samples=40)


def test_a_name_that_the_server_would_refuse_is_an_error_on_the_client() -> None:
    (reply,) = grid_of(quick_app(ReportingMod(), []), **{"client-id": ""}).send_and_receive(
        [question(1)]
    )
    assert "facts: client-id is ''" in str(reply.error.reason)


def test_an_app_without_the_mod_answers_with_an_error() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        message.content["arrays"]
        raise AssertionError

    (reply,) = grid_of(app).send_and_receive([question(1)])
    assert reply.has_error()


def test_it_reports_how_long_the_app_took_and_whether_it_was_cold() -> None:
    seen: SEEN = []
    grid = grid_of(quick_app(ReportingMod(), seen), seconds=0.05)
    start = time.monotonic()
    first = send(grid, "train", 1.0)
    elapsed = time.monotonic() - start
    second = send(grid, "train", 2.0)
    assert 0.05 <= report_of(first).compute_seconds <= elapsed
    assert report_of(second).trained_before == report_of(first).trained_before + 1
    assert report_of(first).signals == {}
    assert seen == [("train", ["arrays", "config"])] * 2
    strategy_sees = {key for key in first.content if key != RECORD}
    assert strategy_sees == {"arrays", "metrics"}
    assert first.content.metric_records["metrics"] == {"num-examples": 8, "train_loss": 0.5}


def test_failures_and_other_messages_pass() -> None:
    seen: SEEN = []
    grid = grid_of(quick_app(ReportingMod(), seen))
    assert "a negative weight" in str(send(grid, "train", -1.0).error.reason)
    assert list(send(grid, "evaluate", 1.0).content) == ["metrics"]


def test_the_gain_is_measured_with_the_apps_own_evaluation() -> None:
    seen: SEEN = []
    grid = grid_of(quick_app(ReportingMod(), seen, marked=True))
    ask = Ask(run="r", round=1, measure_gain=True)
    reply = send(grid, "train", 3.0, ask)
    assert report_of(reply).signals == {"accuracy_before": 3.0, "accuracy_gain": 1.0}
    assert [kind for kind, _ in seen] == ["evaluate", "train", "evaluate"]
    assert all(records == ["arrays", "config"] for _, records in seen)  # and nothing of ours
    send(grid, "train", 3.0, Ask(run="r", round=2))
    assert len(seen) == 4  # nobody asked


@pytest.mark.parametrize("weight", [91.0, 90.0], ids=["before", "after"])
def test_a_gain_that_cannot_be_measured_costs_no_training(
    weight: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid = grid_of(quick_app(ReportingMod(), [], marked=True))
    reply = send(grid, "train", weight, Ask(run="r", round=1, measure_gain=True))
    assert report_of(reply).signals == {}
    assert "the accuracy gain was not measured" in caplog.text


def test_who_wants_gains_is_told_how(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid = grid_of(quick_app(ReportingMod(), []))
    reply = send(grid, "train", 1.0, Ask(run="r", round=1, measure_gain=True))
    assert report_of(reply).signals == {}
    assert "@reporting.evaluates" in caplog.text


def test_a_private_run_gets_nothing_from_an_app_that_adds_no_noise() -> None:
    seen: SEEN = []
    grid = grid_of(quick_app(ReportingMod(), seen, marked=True))
    grant = PrivacyGrant.on(Laplace(), 1.0)
    reply = send(grid, "train", 1.0, Ask(run="r", round=1, measure_gain=True, grant=grant))
    assert "mods=[PrivateMod(), ReportingMod()]" in str(reply.error.reason)
    assert [kind for kind, _ in seen] == ["train"]  # and no accuracies were measured


def test_keys_must_be_names() -> None:
    with pytest.raises(ConfigError, match="client_id_key"):
        ReportingMod(client_id_key="")
