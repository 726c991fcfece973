"""When the server aggregates: each trigger against times computed by hand."""

from typing import Any

import numpy as np
import pytest

from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.federation import Federation
from fedmuster.federation.triggers import TRIGGERS, Buffer, Interval, Pace, Trigger, Waiting

NEVER = np.inf


def waiting(
    *,
    now: float = 10.0,
    since: float = 4.0,
    answers: int = 1,
    quota: int | None = None,
    seconds: list[float] | None = None,
    ages: list[int] | None = None,
    slots: int = 5,
) -> Waiting:
    return Waiting(
        now_seconds=now,
        since_seconds=since,
        answers=answers,
        quota=quota,
        running_seconds=np.array(seconds or [], dtype=np.float64),
        running_ages=np.array(ages or [], dtype=np.int64),
        slots=slots,
    )


@pytest.mark.parametrize(
    ("answers", "quota", "due"),
    [
        (0, None, NEVER),
        (2, None, NEVER),
        (3, None, 10.0),
        (4, None, 10.0),
        (1, 2, NEVER),
        (2, 2, 10.0),  # what the policy asks for counts, be it fewer
        (3, 4, NEVER),  # or more
    ],
)
def test_a_buffer_waits_for_answers(answers: int, quota: int | None, due: float) -> None:
    assert Buffer(answers=3).due_seconds(waiting(answers=answers, quota=quota)) == due


@pytest.mark.parametrize(
    ("now", "since", "answers", "due"),
    [
        (10.0, 4.0, 1, 14.0),  # at 7, 14, 21, … s
        (10.0, 4.0, 0, NEVER),
        (5.0, 4.0, 2, 7.0),
        (14.0, 4.0, 1, 14.0),
        (14.0, 14.0, 1, 21.0),  # not twice at a time
        (25.0, 4.0, 1, 28.0),  # the first answer came after two times without any
    ],
)
def test_an_interval_by_hand(now: float, since: float, answers: int, due: float) -> None:
    state = waiting(now=now, since=since, answers=answers)
    assert Interval(seconds=7.0).due_seconds(state) == due


@pytest.mark.parametrize(
    ("bound", "seconds", "ages", "due"),
    [
        (None, [20.0, 40.0], [0, 1], 12.0),  # 4 s + 40 s / 5 slots
        (4, [20.0, 40.0], [0, 1], 14.0),
        (10, [20.0, 40.0], [0, 1], 10.0),  # 8 s are over
        (4, [np.nan, 40.0, np.nan], [0, 1, 0], 14.0),  # clients of unknown latency do not count
        (4, [np.nan, np.nan], [0, 0], 10.0),
        (4, [], [], 10.0),
        (4, [20.0, 40.0], [3, 0], 14.0),
        (4, [20.0, 40.0], [4, 0], NEVER),  # one more aggregation, and an answer would be too old
        (None, [20.0], [5], NEVER),
        (1, [6.5], [0], 10.5),
    ],
)
def test_pisces_pace_by_hand(
    bound: int | None, seconds: list[float], ages: list[int], due: float
) -> None:
    trigger = Pace(bound=bound)
    assert trigger.due_seconds(waiting(seconds=seconds, ages=ages)) == due
    assert trigger.due_seconds(waiting(seconds=seconds, ages=ages, answers=0)) == NEVER


def test_with_pisces_contributors_rest_and_it_looks_at_running_jobs() -> None:
    assert {name: (k.rests, k.looks_at_jobs) for name, k in TRIGGERS.items()} == {
        "buffer": (False, False),
        "interval": (False, False),
        "pace": (True, True),
    }


def test_a_buffer_must_be_reachable() -> None:
    Buffer(answers=4).require_reachable(4)
    with pytest.raises(ConfigError) as caught:
        Buffer(answers=5).require_reachable(4)
    assert caught.value.key == ("federation", "trigger")
    for trigger in (Interval(), Pace()):
        trigger.require_reachable(1)


@pytest.mark.parametrize(
    "trigger", [Buffer(answers=4), Interval(seconds=2.5), Pace(bound=3), Pace()]
)
def test_a_trigger_survives_toml(trigger: Trigger) -> None:
    federation = Federation(concurrency=6, trigger=trigger)
    assert from_table(Federation, to_table(federation)) == federation


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Buffer, {"answers": 0}),
        (Buffer, {"answers": 2.0}),
        (Interval, {"seconds": 0.0}),
        (Interval, {"seconds": np.inf}),
        (Interval, {"seconds": np.nan}),
        (Interval, {"seconds": "1 h"}),
        (Pace, {"bound": 0}),
        (Pace, {"bound": 1.5}),
    ],
)
def test_settings_that_cannot_be(kind: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    assert caught.value.key == tuple(settings)
