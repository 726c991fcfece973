"""Clients that come and go on a clock: the drawn law against published means, and files."""

import collections
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy import stats

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import FloatArray
from fedmuster.worlds.availability import ActivityRun, ActivityTrace, OnOff, read_activity
from fedmuster.worlds.intervals import Intervals
from fedmuster.worlds.trace_files import TraceError

K = 20_000


def within(values: Any, expected: float, *, level: float = 1e-4) -> bool:
    """Whether a t-test at this level lets the mean pass."""
    return bool(stats.ttest_1samp(np.asarray(values, dtype=np.float64), expected).pvalue > level)


def share_of(intervals: Intervals) -> FloatArray:
    """[K], the share of its period that each client is there."""
    ends = np.minimum(
        intervals.end_seconds, np.repeat(intervals.period_seconds, np.diff(intervals.offsets))
    )
    total = np.concatenate([[0.0], np.cumsum(ends - intervals.start_seconds)])
    return np.asarray(np.diff(total[intervals.offsets]) / intervals.period_seconds)


@pytest.fixture(scope="module")
def drawn() -> ActivityRun:
    return OnOff().start(K, 1)


def test_on_off_has_fedscales_means(drawn: ActivityRun) -> None:
    """Clients are independent: t-tests at 1e-4 each. 79,688 s / 20.81 = 3,829 s an interval."""
    intervals = drawn.intervals
    share = share_of(intervals)
    assert within(share, 0.2026)
    assert share.std() == pytest.approx(0.16, rel=0.05)
    counts = np.diff(intervals.offsets)
    assert within(counts, 20.81)
    assert share.sum() * 393_232 / counts.sum() == pytest.approx(3829, rel=0.03)


@pytest.mark.parametrize("now", [0.0, 86_400.0, 393_232.0 * 7.3])
def test_on_off_is_stationary(drawn: ActivityRun, now: float) -> None:
    """Exact binomial test at 1e-4 each: given the shares, at any time this many are there."""
    assert stats.binomtest(int(drawn.at(1, now).sum()), K, 0.2026).pvalue > 1e-4


def test_on_times_are_exponential_given_their_sum() -> None:
    """Kolmogorov-Smirnov at 1e-3 for each, with many intervals so that the sum hardly matters."""
    law = OnOff(share=0.3, share_sd=0.0, intervals_per_period=400.0, period_seconds=1000.0)
    intervals = law.start(200, 3).intervals
    assert share_of(intervals) == pytest.approx(np.full(200, 0.3))
    on = intervals.end_seconds - intervals.start_seconds
    first = np.zeros(len(on), dtype=np.bool_)
    first[intervals.offsets[:-1]] = True
    off = (intervals.start_seconds - np.roll(intervals.end_seconds, 1))[~first]
    assert stats.kstest(on / on.mean(), "expon").pvalue > 1e-3
    assert stats.kstest(off / off.mean(), "expon").pvalue > 1e-3
    before_the_next_period = 1000.0 - intervals.end_seconds[intervals.offsets[1:] - 1]
    assert stats.kstest(before_the_next_period / off.mean(), "expon").pvalue > 1e-3


def test_who_is_there_depends_on_the_moment_and_the_seed_alone(drawn: ActivityRun) -> None:
    again = OnOff().start(K, 1)
    np.testing.assert_array_equal(again.at(9, 5e4), drawn.at(1, 5e4))
    np.testing.assert_array_equal(drawn.at(1, 5e4), drawn.at(1, 5e4 + 393_232.0))
    assert not drawn.at(1, 5e4).flags.writeable
    assert not np.array_equal(OnOff().start(K, 2).at(1, 5e4), drawn.at(1, 5e4))


def test_a_forecast_is_what_happens(drawn: ActivityRun) -> None:
    """Both windows, against looking every second."""
    now, window = 1000.0, 120.0
    this, following = drawn.forecast(1, now, window)
    seen = np.array([drawn.intervals.at(now + step) for step in range(241)])
    # Who leaves for less than a second is missed by looking, never by the forecast.
    for truth, forecast in ((seen[:121].all(0), this), (seen[120:].all(0), following)):
        assert not np.any(forecast & ~truth)
        assert np.count_nonzero(truth & ~forecast) <= 10
        assert 0 < forecast.sum() < K


def test_waiting_leads_to_the_moment_when_somebody_comes() -> None:
    for seed in range(50):
        run = OnOff(intervals_per_period=2.0).start(2, seed)
        now = 1234.5 * seed
        wait = run.wait_seconds(now)
        assert run.at(1, now + wait).any()
        if run.at(1, now).any():
            assert wait == 0
        else:
            moments = np.linspace(now, now + wait, 50, endpoint=False)
            assert not any(run.at(1, moment).any() for moment in moments)


def test_one_client_and_extreme_shares_are_drawn() -> None:
    assert OnOff(intervals_per_period=1.0).start(1, 1).at(1, 0.0).shape == (1,)
    torn = OnOff(share=0.5, share_sd=0.4999).start(2000, 1)  # nearly all are always or never there
    assert share_of(torn.intervals).mean() == pytest.approx(0.5, abs=0.05)
    assert 0.35 < torn.intervals.throughout(0.0, 10_000.0).mean() < 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 0.0}, "share = 0.0, expected"),
        ({"share": 1.0}, "share = 1.0"),
        ({"share": float("nan")}, "share = nan"),
        ({"share_sd": -0.1}, "share_sd"),
        ({"share": 0.1, "share_sd": 0.31}, "share_sd"),
        ({"intervals_per_period": 0.5}, "intervals_per_period"),
        ({"period_seconds": 0.0}, "period_seconds"),
        ({"period_seconds": float("inf")}, "period_seconds"),
        ({"share": "often"}, "share"),
    ],
)
def test_on_off_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OnOff(**changes)


def test_laws_round_trip() -> None:
    kinds: dict[str, Any] = {kind.name: kind for kind in (OnOff, ActivityTrace)}
    for law in (OnOff(), OnOff(share=0.5, share_sd=0.0), ActivityTrace(path="x.csv")):
        assert named(kinds, to_table(law), key=("availability",), what="availability") == law


GOOD = """client,start_seconds,end_seconds
phone,10,20
tablet,0,5
phone,20,30.5
tablet,30,40
"""


def written(tmp_path: Path, text: str, name: str = "activity.csv") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_csv_begins_anew_after_its_last_end(tmp_path: Path) -> None:
    run = ActivityTrace(path=written(tmp_path, GOOD)).start(2, 1)
    for now, expected in {
        0.0: [False, True],
        12.0: [True, False],
        20.0: [True, False],
        30.5: [True, True],
        42.0: [False, True],
        50.0: [True, False],
    }.items():
        np.testing.assert_array_equal(run.at(1, now), expected)
    this, following = run.forecast(1, 30.0, 11.0)  # on (30, 41] and on (41, 52]
    np.testing.assert_array_equal(this, [False, True])
    np.testing.assert_array_equal(following, [False, False])
    assert run.wait_seconds(6.0) == 4.0


def test_csv_with_periods_of_its_own(tmp_path: Path) -> None:
    text = "client,start_seconds,end_seconds,period_seconds\n1,0,5,10\n2,6,12,24\n2,20,24,24\n"
    intervals = read_activity(written(tmp_path, text))
    np.testing.assert_array_equal(intervals.period_seconds, [10, 24])
    np.testing.assert_array_equal(intervals.at(31.0), [True, True])
    np.testing.assert_array_equal(intervals.at(38.0), [False, False])


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    path = tmp_path / "activity.parquet"
    columns = {
        "client": ["phone", "tablet", "phone", "tablet"],
        "start_seconds": [10, 0, 20, 30],
        "end_seconds": [20.0, 5.0, 30.5, 40.0],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    left, right = read_activity(str(path)), read_activity(written(tmp_path, GOOD))
    np.testing.assert_array_equal(left.start_seconds, right.start_seconds)
    np.testing.assert_array_equal(left.end_seconds, right.end_seconds)
    np.testing.assert_array_equal(left.period_seconds, right.period_seconds)


HEAD = "client,start_seconds,end_seconds\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,start_seconds\n1,2\n", "column 'end_seconds' is not in the header"),
        (HEAD, "has no rows; expected one for each interval"),
        (HEAD + "1,5,4\n", "line 2: end_seconds = '4', expected at least start_seconds"),
        (HEAD + "1,-1,4\n", "line 2: start_seconds = '-1'"),
        (HEAD + "1,nan,4\n", "line 2: start_seconds = 'nan'"),
        (HEAD + "1,1,inf\n", "line 2: end_seconds = 'inf'"),
        (HEAD + "1,1,x\n", "line 2: end_seconds = 'x'"),
        (HEAD + ",1,2\n", "line 2: client is empty"),
        (
            "client,start_seconds,end_seconds,period_seconds\n1,1,2,9\n1,3,4,8\n",
            "period_seconds = '9', expected the same in all its rows",
        ),
        (
            "client,start_seconds,end_seconds,period_seconds\n1,1,12,9\n",
            "end_seconds = '12', expected at most period_seconds",
        ),
    ],
)
def test_malformed_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ActivityTrace(path=written(tmp_path, text)).start(1, 1)


def test_a_missing_file_is_refused_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ActivityTrace(path=str(tmp_path / "none")).start(1, 1)
    assert caught.value.key == ("availability", "path")


@pytest.mark.parametrize("name", ["activity.CSVX", "activity.json", "activity.csv.gz"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"ends in '\.\w+', expected .csv or .parquet") as caught:
        read_activity(written(tmp_path, GOOD, name))
    assert "FedScale's own: no ending, .pkl or .pickle" in str(caught.value)
    assert caught.value.key == ("availability", "path")


@pytest.mark.parametrize("text", [GOOD, '{"1": {"active": []}}', "[]", "", "version https://x"])
@pytest.mark.parametrize("name", ["client_behave_trace", "trace.pkl", "trace.PICKLE"])
def test_what_is_no_pickle_is_no_fedscale_trace(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(TraceError, match="is no FedScale trace, CSV or Parquet file; get"):
        read_activity(written(tmp_path, text, name))


def test_a_malformed_file_comes_back_whole_from_a_worker(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read_activity(written(tmp_path, "", "client_behave_trace"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.key) == (str(caught.value), ("availability", "path"))


def test_fewer_and_more_clients_than_the_file_has(tmp_path: Path) -> None:
    """Client i of the file has the period 10 + i: shows who is who."""
    rows = "".join(f"{i},0,5,{10 + i}\n" for i in range(7))
    trace = ActivityTrace(
        path=written(tmp_path, "client,start_seconds,end_seconds,period_seconds\n" + rows)
    )

    def who(num_clients: int, seed: int) -> list[int]:
        periods = trace.start(num_clients, seed).intervals.period_seconds
        return [int(period) - 10 for period in periods]

    assert who(7, 1) == list(range(7))
    assert len(set(who(4, 1))) == 4
    assert who(4, 1) == who(4, 1) != who(4, 2)
    assert who(4, 1) != sorted(who(4, 1))
    times = collections.Counter(who(17, 1))
    assert who(17, 1)[:7] != list(range(7))
    assert sorted(times.values()) == [2, 2, 2, 2, 3, 3, 3]


def fedscale(**changes: Any) -> dict[int, dict[str, Any]]:
    """Two clients as FedScale writes them; the first is one that its users quote."""
    first = {
        "duration": 211625,
        "inactive": [65881, 133574, 208292, 276575, 295006, 356236, 400906, 475099],
        "finish_time": 518400,
        "active": [12788, 100044, 188992, 271372, 276663, 352625, 356267, 441193],
        "model": "CPH1801",
    }
    second = {"duration": 5, "active": [5], "inactive": [10], "finish_time": 86400, "model": "x"}
    return collections.OrderedDict({2: second, 1: first | changes})


def dumped(
    tmp_path: Path, value: object, protocol: int = 2, name: str = "client_behave_trace"
) -> str:
    path = tmp_path / name
    path.write_bytes(pickle.dumps(value, protocol))
    return str(path)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("name", ["client_behave_trace", "trace.pkl", "trace.Pickle"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_fedscales_file_is_read(
    tmp_path: Path, protocol: int, name: str, kind: type[dict[int, dict[str, Any]]]
) -> None:
    path = dumped(tmp_path, kind(fedscale()), protocol, name)
    run = ActivityTrace(path=path).start(2, 1)
    np.testing.assert_array_equal(run.intervals.period_seconds, [518400, 86400])
    assert share_of(run.intervals)[0] * 518400 == pytest.approx(211625)  # its "duration"
    for now, expected in {
        0.0: [False, False],
        12788.0: [True, False],
        65881.0: [True, False],
        65882.0: [False, False],
        518400.0 + 20000: [True, False],
        86400.0 * 6 + 7: [False, True],
    }.items():
        np.testing.assert_array_equal(run.at(1, now), expected)


def test_fedscales_clock_never_shows_the_finish_time(tmp_path: Path) -> None:
    value = fedscale(active=[10, 90, 120], inactive=[20, 110, 130], finish_time=100)
    intervals = read_activity(dumped(tmp_path, value))
    assert share_of(intervals)[0] == pytest.approx(0.2)
    np.testing.assert_array_equal(
        [bool(intervals.at(now)[0]) for now in (95.0, 100.0, 105.0, 115.0)],
        [True, False, False, True],
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"active": [1, 2]}, "client 1: active and inactive differ in length"),
        ({"active": [1], "inactive": [0]}, "client 1: inactive comes before active"),
        ({"active": [-1], "inactive": [3]}, "client 1: active must hold times in"),
        ({"active": [1], "inactive": [float("nan")]}, "client 1: inactive must hold times in"),
        ({"active": [1.5], "inactive": [float("inf")]}, "client 1: inactive must hold times in"),
        ({"active": [1], "inactive": ["x"]}, "client 1: inactive holds a str"),
        ({"active": [True], "inactive": [2]}, "client 1: active holds a bool"),
        ({"active": 5, "inactive": [7]}, "client 1: active is a int, expected a list"),
        ({"finish_time": 0}, "client 1: finish_time must be a number in"),
        ({"finish_time": -5.0}, "client 1: finish_time must be a number in"),
        ({"finish_time": None}, "client 1: finish_time holds a NoneType"),
        ({"finish_time": 10**400}, "finish_time holds a number that is too large"),
    ],
)
def test_impossible_behaviour_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_activity(dumped(tmp_path, fedscale(**changes)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "holds a list, expected clients in a dict"),
        ({}, "holds a dict, expected clients"),
        ({"a": {}}, "client 'a' is not an integer"),
        ({1: 5}, "client 1: is a int, expected a dict"),
        ({1: {"active": []}}, "client 1: has no 'finish_time'"),
    ],
)
def test_other_shapes_are_refused(tmp_path: Path, value: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_activity(dumped(tmp_path, value))


def test_a_trace_in_which_nobody_ever_comes_is_refused(tmp_path: Path) -> None:
    nobody = {1: {"active": [], "inactive": [], "finish_time": 100}}
    with pytest.raises(TraceError):
        ActivityTrace(path=dumped(tmp_path, nobody)).start(1, 1)
