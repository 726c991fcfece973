"""What travels comes back the same; what nobody of ours would write is refused with its reason."""

import math
from dataclasses import replace
from typing import Any

import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.errors import DataError
from fedmuster.flower.wire import (
    RECORD,
    Ask,
    Facts,
    HeldReceipt,
    PrivacyGrant,
    Question,
    Release,
    Report,
    accuracy_of,
    loss_of,
    signals_of,
    strip,
)
from fedmuster.privacy.mechanisms import Gaussian, Laplace, Mechanism

Wired = Ask | Facts | HeldReceipt | Question | Release | Report

EVERYTHING: list[Wired] = [
    Question(),
    Ask(run="r1", round=7, measure_gain=True),
    Ask(run="r1", round=1, grant=PrivacyGrant.on(Gaussian(clip=3.0), 0.25)),
    Report(compute_seconds=1.5, trained_before=0),
    Report(compute_seconds=0.0, trained_before=2, signals={"accuracy_gain": -0.5, "a.b": 1e300}),
    Ask(run="r1", round=1, grant=PrivacyGrant.on(Laplace(), 0.25, "a receipt — as text")),
    Release(run="r1", round=3, amount=0.5),
    HeldReceipt(log_size=77),
    Facts(log_size=5),
    Facts(),
    Facts(client_id="hospital-3", edges=("west", "east"), num_samples=12),
]


def over_the_wire(content: RecordDict) -> RecordDict:
    """As Flower sends it: every record deflated and inflated."""
    sent = {
        key: type(record).inflate(record.deflate())
        for key, record in content.items()
        if isinstance(record, ConfigRecord)
    }
    return RecordDict(dict(sent))


@pytest.mark.parametrize("item", EVERYTHING, ids=repr)
def test_what_is_sent_is_received(item: Wired) -> None:
    content = RecordDict()
    item.into(content)
    assert type(item).of(over_the_wire(content)) == item
    content.config_records[RECORD].count_bytes()  # which other mods call, and which is picky


def test_they_share_a_record_and_do_not_mix() -> None:
    content = RecordDict({"config": ConfigRecord({"lr": 0.1})})
    for item in EVERYTHING:
        item.into(content)
    newest = {type(item): item for item in EVERYTHING}
    for kind, item in newest.items():
        assert kind.of(content) == item
    Report(compute_seconds=2.0, trained_before=1).into(content)  # leaves no signal of the older
    assert Report.of(content) == Report(compute_seconds=2.0, trained_before=1)
    strip(content)
    assert list(content) == ["config"]
    assert all(kind.of(content) is None for kind in newest)


def test_a_question_is_no_answer() -> None:
    """An app that sends back what it got must not be taken for one that answers."""
    content = RecordDict()
    Question().into(content)
    assert Facts.of(content) is None


@pytest.mark.parametrize(
    ("kind", "values", "complaint"),
    [
        (Ask, {"ask.run": "r"}, "ask: round is None"),
        (Ask, {"ask.run": "r", "ask.round": 0}, "round is 0, expected a whole number from 1"),
        (Ask, {"ask.run": "r", "ask.round": True}, "round is True"),
        (Ask, {"ask.run": "", "ask.round": 1}, "run is ''"),
        (Ask, {"ask.run": "r", "ask.round": 1, "ask.measure-gain": 1}, "measure-gain is 1"),
        (Ask, {"ask.run": "r", "ask.round": 1, "ask.amount": 0.5}, "mechanism is None"),
        (Ask, {"ask.run": "r", "ask.round": 1, "ask.mechanism": "{}"}, "amount is None"),
        (Report, {"report.trained-before": 0}, "report: compute-seconds is None"),
        (Report, {"report.compute-seconds": math.nan, "report.trained-before": 0}, "is nan"),
        (Report, {"report.compute-seconds": -1.0, "report.trained-before": 0}, "not negative"),
        (Report, {"report.compute-seconds": "1", "report.trained-before": 0}, "is '1'"),
        (Report, {"report.compute-seconds": 2**63, "report.trained-before": 0}, "finite number"),
        (Report, {"report.compute-seconds": 1.0, "report.trained-before": 1.5}, "is 1.5"),
        (Release, {"release.run": "r", "release.round": 1}, "amount is None"),
        (HeldReceipt, {"held.log-size": -1}, "log-size is -1"),
        (HeldReceipt, {"held.log-size": 0.5}, "log-size is 0.5"),
        (Facts, {"facts.known": True, "facts.log-size": "1"}, "log-size is '1'"),
        (Facts, {"facts.client-id": 3}, "facts: client-id is 3"),
        (Facts, {"facts.client-id": "a\nfedmuster: b"}, "printable"),
        (Facts, {"facts.client-id": "x" * 201}, "1 … 200"),
        (Facts, {"facts.edges": "west"}, "edges is 'west', expected a list"),
        (Facts, {"facts.edges": ["e"] * 65}, "at most 64"),
        (Facts, {"facts.edges": [""]}, "name of an edge is ''"),
        (Facts, {"facts.num-samples": -1}, "num-samples is -1"),
        (Question, {"question.wanted": b"facts"}, "wanted is b'facts'"),
    ],
)
def test_what_cannot_be_right_is_refused(
    kind: type[Wired], values: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DataError) as raised:
        kind.of(RecordDict({RECORD: ConfigRecord(values)}))
    assert complaint in str(raised.value)
    assert len(str(raised.value)) < 200


def test_signals_are_checked_too() -> None:
    right = Report(compute_seconds=1.0, trained_before=0)
    for signals in (
        {"loss": math.inf},
        {"": 1.0},
        {"x" * 201: 1.0},
        {f"{n}": 0.0 for n in range(65)},
    ):
        content = RecordDict()
        replace(right, signals=signals).into(content)
        with pytest.raises(DataError, match="report"):
            Report.of(content)


def test_another_kind_of_record_is_refused() -> None:
    with pytest.raises(DataError, match="MetricRecord, expected a ConfigRecord"):
        Report.of(RecordDict({RECORD: MetricRecord({"report.compute-seconds": 1.0})}))


@given(
    st.dictionaries(
        st.sampled_from(
            [
                f"{kind.PREFIX}{key}"
                for kind in (Ask, Facts, HeldReceipt, Question, Release, Report)
                for key in ("run", "round", "amount", "mechanism", "edges", "client-id", "wanted")
            ]
        ),
        st.one_of(
            st.integers(-(2**63), 2**63),
            st.floats(),
            st.booleans(),
            st.text(),
            st.binary(),
            st.lists(st.text()),
            st.lists(st.floats()),
        ),
    )
)
def test_nothing_else_ever_happens(values: dict[str, Any]) -> None:
    content = RecordDict({RECORD: ConfigRecord(values)})
    for kind in (Ask, Facts, HeldReceipt, Question, Release, Report):
        try:
            item: Wired | None = kind.of(content)
        except DataError:
            continue
        assert item is None or isinstance(item, kind)


@pytest.mark.parametrize("mechanism", [Laplace(mode="per-coordinate", clip=0.5), Gaussian()])
def test_a_grant_names_its_mechanism(mechanism: Mechanism) -> None:
    assert PrivacyGrant.on(mechanism, 1.0).parsed_mechanism() == mechanism


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{", '{"name": "none"}', '{"name": "laplace", "clip": -1}', "[" * 4000]
)
def test_a_grant_of_nonsense_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="mechanism"):
        PrivacyGrant(amount=1.0, mechanism=text).parsed_mechanism()


@pytest.mark.parametrize(
    ("metrics", "accuracy", "loss"),
    [
        ({"accuracy": 0.5, "eval_acc": 0.9, "loss": 2.0, "train_loss": 1.0}, 0.5, 2.0),
        ({"train_acc": 0.8, "eval-acc": 0.7, "Test-Loss": 1.0}, 0.7, 1.0),
        ({"server_eval_accuracy": 0.6, "my_loss": 0.2}, 0.6, 0.2),
        ({"accuracy": math.nan, "acc": 0.3, "loss": [1.0], "val_loss": 4.0}, 0.3, 4.0),
        ({"num-examples": 5, "inaccuracy": 0.1, "flossing": 3}, None, None),
        ({"accuracy": 1}, 1.0, None),
        ({"my_loss": 2.0, "an_acc": 0.1, "a_loss": 1.0, "b_accuracy": 0.2}, 0.2, 1.0),
    ],
)
def test_which_metric_is_the_accuracy(
    metrics: dict[str, Any], accuracy: float | None, loss: float | None
) -> None:
    for order in (metrics, dict(reversed(metrics.items()))):
        record = MetricRecord(order)
        assert accuracy_of(record) == accuracy
        assert loss_of(record) == loss


def test_signals_are_all_finite_numbers_and_the_loss() -> None:
    metrics = MetricRecord({"eval_loss": 0.5, "n": 3, "bad": math.inf, "list": [1.0]})
    assert signals_of(metrics) == {"eval_loss": 0.5, "n": 3.0, "loss": 0.5}
    assert signals_of(MetricRecord({"loss": 1.0, "train_loss": 2.0}))["loss"] == 1.0
