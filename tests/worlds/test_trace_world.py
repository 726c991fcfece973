"""Traces: replay, bootstrap, ids of any kind, and every way in which a file can be wrong."""

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy import stats

from fedmuster.core.errors import ConfigError, DataError, MissingExtraError
from fedmuster.core.records import Selection
from fedmuster.worlds import Bernoulli, TraceWorld
from fedmuster.worlds.trace_world import read_trace

GOOD = """client,round,latency_seconds
b,1,0.5
a,1,0.2
c,2,0.9
a,2,0.4
a,4,0.6
"""


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(GOOD)
    return path


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return str(path)


def parquet(tmp_path: Path, **columns: Any) -> str:
    path = tmp_path / "trace.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return str(path)


def test_replay_goes_round_and_knows_who_is_absent(csv: Path) -> None:
    run = TraceWorld(path=str(csv), cohort_size=2).start(1)
    assert run.problem.num_clients == 3
    assert run.tau_min_seconds == 0.2
    expected: Mapping[int, Sequence[float]] = {
        1: [0.2, 0.5, np.inf],
        2: [0.4, np.inf, 0.9],
        3: [np.inf, np.inf, np.inf],  # a round without rows
        4: [0.6, np.inf, np.inf],
    }
    for t in (1, 2, 3, 4, 5, 8, 402):
        drawn = run.realise(t)
        here = (t - 1) % 4 + 1
        np.testing.assert_array_equal(drawn.latency_seconds, expected[here])
        np.testing.assert_array_equal(drawn.available, np.isfinite(expected[here]))
    outcome = run.realise(6).play(Selection(round=6, clients=np.array([0, 2])))
    assert outcome.round_seconds == 0.9
    with pytest.raises(DataError, match="1"):
        run.realise(6).play(Selection(round=6, clients=np.array([1])))


def test_replay_needs_no_luck_but_availability_and_dropout_do(csv: Path) -> None:
    plain = TraceWorld(path=str(csv))
    for t in (1, 2):
        np.testing.assert_array_equal(
            plain.start(1).realise(t).latency_seconds, plain.start(2).realise(t).latency_seconds
        )
    seldom = TraceWorld(path=str(csv), availability=Bernoulli(probability=0.0)).start(1)
    assert not seldom.realise(1).available.any()
    lost = TraceWorld(path=str(csv), dropout=1.0, deadline_seconds=3.0).start(1).realise(1)
    np.testing.assert_array_equal(lost.available, [True, True, False])
    outcome = lost.play(Selection(round=1, clients=np.array([0, 1])))
    assert outcome.round_seconds == 3.0
    np.testing.assert_array_equal(outcome.feedback.answered, [False, False])


@pytest.mark.parametrize("mode", ["replay", "bootstrap"])
def test_truth_is_each_clients_average(csv: Path, mode: str) -> None:
    world = TraceWorld(
        path=str(csv),
        mode="replay" if mode == "replay" else "bootstrap",
        dropout=0.5,
        deadline_seconds=0.5,
    )
    truth = world.start(1).realise(1).truth
    assert truth.mean_latency_seconds == pytest.approx([0.4, 0.5, 0.9])
    # Half of all rounds are lost, and those beyond 0.5 s.
    in_time = [(0.2 / 0.2 + 0.2 / 0.4) / 3, 0.2 / 0.5, 0.0]
    assert truth.mean_speed == pytest.approx([0.5 * speed for speed in in_time])


def test_bootstrap_draws_each_client_from_its_own_rows(csv: Path) -> None:
    """Frequencies of client a's three rows, chi-squared at 1e-3; b and c have one row each."""
    run = TraceWorld(path=str(csv), mode="bootstrap").start(1)
    latency = np.array([run.realise(t).latency_seconds for t in range(1, 3001)])
    assert all(run.realise(t).available.all() for t in (1, 3))
    assert set(latency[:, 1]) == {0.5}
    assert set(latency[:, 2]) == {0.9}
    values, counts = np.unique(latency[:, 0], return_counts=True)
    np.testing.assert_array_equal(values, [0.2, 0.4, 0.6])
    assert stats.chisquare(counts).pvalue > 1e-3
    again = TraceWorld(path=str(csv), mode="bootstrap").start(1)
    np.testing.assert_array_equal(again.realise(17).latency_seconds, latency[16])


def test_numeric_ids_sort_as_numbers_and_others_as_text(tmp_path: Path) -> None:
    head = "latency_seconds, round, client, note\n"
    numbers = written(tmp_path, head + "0.1,1,10,x\n0.2,1,9,y\n0.3,1,-1,z\n")
    np.testing.assert_array_equal(
        TraceWorld(path=numbers).start(1).realise(1).latency_seconds, [0.3, 0.2, 0.1]
    )
    mixed = written(tmp_path, head + "0.1,1,10,x\n0.2,1,9,y\n0.3,1,phone,z\n")
    np.testing.assert_array_equal(
        TraceWorld(path=mixed).start(1).realise(1).latency_seconds, [0.1, 0.2, 0.3]
    )
    zeros = written(tmp_path, head + "0.1,1,1,x\n0.2,1,01,y\n0.3,1,001,z\n")
    np.testing.assert_array_equal(
        TraceWorld(path=zeros).start(1).realise(1).latency_seconds, [0.3, 0.2, 0.1]
    )


def test_blank_lines_byte_order_mark_and_quotes_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, '\ufeffclient,round,latency_seconds\n"x, y",1, 0.5\n\nz,1,0.25\n\n')
    np.testing.assert_array_equal(
        TraceWorld(path=path).start(1).realise(1).latency_seconds, [0.5, 0.25]
    )


HEAD = "client,round,latency_seconds\na,1,0.5\n"

MALFORMED = [
    ("client,latency_seconds\na,0.5\n", "column 'round' is not in the header"),
    ("client,round,round,latency_seconds\na,1,1,0.5\n", "column 'round' is twice in the header"),
    ("", "column 'client' is not in the header"),
    ("client,round,latency_seconds\n", "has no rows"),
    (HEAD + "b,1,fast\n", "line 3: latency_seconds = 'fast'"),
    (HEAD + "b,1,\n", "line 3: latency_seconds = ''"),
    (HEAD + "b,1,nan\n", "line 3: latency_seconds = 'nan'"),
    (HEAD + "\nb,1,inf\n", "line 4: latency_seconds = 'inf'"),
    (HEAD + "b,1,-0.5\n", "line 3: latency_seconds = '-0.5'"),
    (HEAD + "b,1,0\n", "line 3: latency_seconds = '0'"),
    (HEAD + "b,1.5,0.5\n", "line 3: round = '1.5'"),
    (HEAD + "b,0,0.5\n", "line 3: round = '0'"),
    (HEAD + "b,99999999999999999999,0.5\n", "line 3: round = '99999999999999999999'"),
    (HEAD + ",1,0.5\n", "line 3: client is empty"),
    (HEAD + "b,1\n", "line 3: fewer columns than the header has"),
    (
        HEAD + "b,1,0.5\na,1,0.7\n",
        "line 4: client a and round 1 were there before, in line 2; correct or remove the line",
    ),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED)
def test_malformed_files_are_refused_with_their_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        TraceWorld(path=written(tmp_path, text)).start(1)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"client,round,latency_seconds\n\xff\xfe,1,0.5\n")
    with pytest.raises(DataError, match=r"CSV.*UTF-8"):
        TraceWorld(path=str(path)).start(1)


def test_a_path_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        TraceWorld(path=str(tmp_path / "none.csv")).start(1)
    assert caught.value.key == ("path",)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ConfigError):
        TraceWorld(path=str(tmp_path / "folder.csv")).start(1)
    (tmp_path / "trace.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"ends in '.json', expected .csv or .parquet"):
        TraceWorld(path=str(tmp_path / "trace.json")).start(1)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD)
    assert read_trace(path) is read_trace(path)
    written(tmp_path, HEAD + "b,1,0.25\n")
    assert TraceWorld(path=path).start(1).problem.num_clients == 2


def test_parquet_says_the_same_as_csv(tmp_path: Path, csv: Path) -> None:
    path = parquet(
        tmp_path,
        client=["b", "a", "c", "a", "a"],
        round=[1, 1, 2, 2, 4],
        latency_seconds=[0.5, 0.2, 0.9, 0.4, 0.6],
        note=[1, 2, 3, 4, 5],
    )
    left, right = TraceWorld(path=path).start(1), TraceWorld(path=str(csv)).start(1)
    for t in range(1, 5):
        np.testing.assert_array_equal(
            left.realise(t).latency_seconds, right.realise(t).latency_seconds
        )
    numbers = parquet(tmp_path, client=[10, 9], round=[1, 1], latency_seconds=[1, 2])
    np.testing.assert_array_equal(
        TraceWorld(path=numbers).start(1).realise(1).latency_seconds, [2.0, 1.0]
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"client": ["a"], "round": [1]}, "column 'latency_seconds' is not in the header"),
        (
            {"client": ["a", None], "round": [1, 1], "latency_seconds": [0.5, 0.5]},
            "row 2: client is empty",
        ),
        (
            {"client": ["a", "b"], "round": [1, None], "latency_seconds": [0.5, 0.5]},
            "row 2: round = None",
        ),
        (
            {"client": ["a", "b"], "round": [1, 1], "latency_seconds": [0.5, None]},
            "row 2: latency_seconds = None",
        ),
        ({"client": ["a"], "round": [1.5], "latency_seconds": [0.5]}, "round is not a column of"),
        ({"client": ["a"], "round": [1], "latency_seconds": ["x"]}, "row 1: latency_seconds = 'x'"),
        ({"client": ["a"], "round": [1], "latency_seconds": [float("nan")]}, "row 1: latency_sec"),
        ({"client": ["a"], "round": [1], "latency_seconds": [-1.0]}, "row 1: latency_seconds"),
        (
            {"client": ["a", "a"], "round": [1, 1], "latency_seconds": [1.0, 2.0]},
            "row 2: client a and round 1 were there before, in row 1; correct or remove the row",
        ),
    ],
)
def test_malformed_parquet_is_refused_with_its_row(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        TraceWorld(path=parquet(tmp_path, **columns)).start(1)


def test_parquet_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    path.write_text("client,round\n")
    with pytest.raises(DataError):
        TraceWorld(path=str(path)).start(1)


def test_without_pyarrow_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path, client=[1], round=[1], latency_seconds=[0.5])
    real = builtins.__import__

    def without_pyarrow(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedmuster\[parquet\]'"):
        TraceWorld(path=path).start(1)
