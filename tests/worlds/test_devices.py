"""The world of phones: published statistics, files, rounds with a deadline, the exact truth."""

import os
import pickle
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from scipy import stats

from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError, DataError, FedmusterError
from fedmuster.core.records import Selection
from fedmuster.worlds import Always, WorldRun
from fedmuster.worlds.availability import ActivityTrace, OnOff
from fedmuster.worlds.devices import (
    ATTRIBUTES,
    DeviceTrace,
    DeviceWorld,
    DrawnDevices,
    attributes_of,
    read_devices,
)

K = 40_000
SMALL = DeviceWorld(num_clients=400, cohort_size=10, availability=Always())


def test_drawn_compute_times_have_the_published_range_and_mean() -> None:
    """FedScale: 15 … 199 ms, mean 78. A t-test at 1e-4."""
    compute = DrawnDevices().draw(K, np.random.default_rng(1)).compute_ms_per_sample
    assert 15 <= compute.min() < 16
    assert 195 < compute.max() <= 199
    assert stats.ttest_1samp(compute, 78.0).pvalue > 1e-4
    assert compute.std() == pytest.approx(50, rel=0.02)


def test_drawn_bandwidths_follow_the_truncated_log_normal() -> None:
    """Kolmogorov-Smirnov at 1e-4 against scipy; mean and median near FedScale's.

    Truncation lifts the median of the fitted law from the published 6,100 to 6,898.
    """
    bandwidth = DrawnDevices().draw(K, np.random.default_rng(2)).bandwidth_kbit_per_second
    low, high = (np.log([1017.0, 204_057.0]) - 8.716) / 1.274
    law = stats.truncnorm(low, high, 8.716, 1.274)
    assert stats.kstest(np.log(bandwidth), law.cdf).pvalue > 1e-4
    assert bandwidth.min() >= 1017
    assert bandwidth.max() <= 204_057
    assert bandwidth.mean() == pytest.approx(13_736, rel=0.03)
    assert np.median(bandwidth) == pytest.approx(6898, rel=0.03)


def test_all_policies_face_the_same_luck_in_any_order() -> None:
    world = DeviceWorld(num_clients=300)
    first, second = world.start(5), world.start(5)
    second.realise(9)
    for t in (4, 1):
        a = first.realise(t, now_seconds=500.0 * t)
        b = second.realise(t, now_seconds=500.0 * t)
        np.testing.assert_array_equal(a.latency_seconds, b.latency_seconds)
        np.testing.assert_array_equal(a.available, b.available)
    early, late = first.realise(4, now_seconds=0.0), first.realise(4, now_seconds=1e5)
    np.testing.assert_array_equal(early.latency_seconds, late.latency_seconds)
    assert not np.array_equal(early.available, late.available)


def test_who_is_in_time_answers_with_the_seconds_of_both_parts() -> None:
    drawn = SMALL.start(1).realise(2)
    clients = np.arange(10)
    outcome = drawn.play(Selection(round=2, clients=clients))
    feedback, latency = outcome.feedback, drawn.latency_seconds[:10]
    np.testing.assert_array_equal(feedback.answered, latency <= 100.0)
    assert 0 < feedback.answered.sum() < 10
    assert outcome.round_seconds == 100.0
    there = feedback.answered
    # The model is sent down and up, and the upload is the second of these.
    both = feedback.signals["compute_seconds"] + 2 * feedback.signals["upload_seconds"]
    np.testing.assert_allclose(both[there], feedback.latency_seconds[there])
    assert np.isnan(both[~there]).all()
    assert np.isinf(feedback.latency_seconds[~there]).all()
    np.testing.assert_array_equal(outcome.latency_seconds, latency)


def test_the_first_answers_count_when_more_are_asked() -> None:
    world = DeviceWorld(num_clients=400, cohort_size=10, availability=Always(), over_selection=1.3)
    run = world.start(1)
    assert run.num_to_ask == 13
    fast = np.sort(np.argsort(run.typical_latency_seconds())[:13])
    drawn = run.realise(1)
    outcome = drawn.play(Selection(round=1, clients=fast))
    assert outcome.feedback.answered.sum() == 10
    assert outcome.round_seconds == np.sort(drawn.latency_seconds[fast])[9]


def test_truth_and_validity_are_what_is_drawn() -> None:
    """2,000 rounds of 400 phones; standardised errors are normal: |mean| and spread, and the
    largest of 400 within 5 (2e-4)."""
    world = DeviceWorld(num_clients=400, availability=Always(), dropout=0.1)
    run, rounds = world.start(1), 2000
    latency = np.array([run.realise(t).latency_seconds for t in range(1, rounds + 1)])
    in_time = latency <= 100.0
    validity, truth = run.columns["validity"], run.realise(1).truth
    assert stats.binomtest(int(in_time.sum()), in_time.size, float(validity.mean())).pvalue > 1e-4
    certain = (validity < 1e-9) | (validity > 0.9 - 1e-9)
    np.testing.assert_array_equal(in_time[:, validity < 1e-9], False)
    sd = np.sqrt(validity * (1 - validity) / rounds)[~certain]
    assert np.abs((in_time.mean(0) - validity)[~certain] / sd).max() < 5
    speed = np.where(in_time, run.tau_min_seconds / latency, 0.0)
    error = speed.std(0) / np.sqrt(rounds)
    often = validity > 0.05
    z = ((speed.mean(0) - truth.mean_speed)[often]) / error[often]
    assert np.abs(z).max() < 5
    assert z.std() == pytest.approx(1.0, abs=0.25)
    usual = np.where(np.isfinite(latency), latency, np.nan)
    error = np.nanstd(usual, axis=0) / np.sqrt(0.9 * rounds)
    assert np.abs((np.nanmean(usual, axis=0) - truth.mean_latency_seconds) / error).max() < 5


def test_a_sensible_share_is_in_time_and_attributes_tell_part_of_it() -> None:
    run = DeviceWorld().start(1)
    validity, attributes = run.columns["validity"], run.problem.attributes
    assert attributes is not None
    assert 0.4 < validity.mean() < 0.6
    assert np.mean(validity > 0.95) > 0.3
    assert np.mean(validity < 0.05) > 0.3
    design = np.column_stack([np.ones(3500), attributes])
    residual = validity - design @ np.linalg.lstsq(design, validity, rcond=None)[0]
    assert 0.5 < 1 - residual.var() / validity.var() < 0.9
    without_deadline = DeviceWorld(deadline_seconds=None).start(1)
    assert without_deadline.columns["validity"] == pytest.approx(np.ones(3500))


def test_attributes_are_plausible_and_rise_with_speed() -> None:
    rng = np.random.default_rng(1)
    devices = DrawnDevices().draw(5000, rng)
    attributes = attributes_of(devices, rng)
    assert attributes.shape == (5000, len(ATTRIBUTES))
    assert np.isfinite(attributes).all()
    gflops, cores, memory, accelerator, bandwidth = attributes.T
    assert set(cores) == {2, 4, 6, 8}
    assert set(memory) == {1, 2, 4, 8, 16}
    assert set(accelerator) == {0, 1}
    speed = -devices.compute_ms_per_sample
    for column, least in ((gflops, 0.9), (cores, 0.7), (memory, 0.7), (accelerator, 0.6)):
        assert least < stats.spearmanr(column, speed).statistic < 0.99
    link = stats.spearmanr(bandwidth, devices.bandwidth_kbit_per_second).statistic
    assert 0.9 < link < 0.999
    assert abs(stats.spearmanr(bandwidth, speed).statistic) < 0.06


def test_configs_round_trip_through_toml() -> None:
    for world in (
        DeviceWorld(),
        DeviceWorld(devices=DeviceTrace(path="x"), availability=ActivityTrace(path="y")),
        DeviceWorld(
            devices=DrawnDevices(compute_ms_sd=20.0), availability=OnOff(share=0.5), batch_size=5
        ),
    ):
        table = tomllib.loads(tomli_w.dumps(to_table(world)))
        assert table.pop("name") == "devices"
        assert from_table(DeviceWorld, table) == world


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (DeviceWorld, {"num_clients": 0}, "num_clients = 0"),
        (DeviceWorld, {"batch_size": 0}, "batch_size = 0"),
        (DeviceWorld, {"local_steps": 2.5}, "local_steps"),
        (DeviceWorld, {"update_mbit": 0.0}, "update_mbit"),
        (DeviceWorld, {"compute_relative_sd": 0.0}, "compute_relative_sd"),
        (DeviceWorld, {"communication_relative_sd": float("nan")}, "communication_relative_sd"),
        (DeviceWorld, {"tau_min_seconds": -1.0}, "tau_min_seconds"),
        (DrawnDevices, {"compute_ms_range": (199.0, 15.0)}, "compute_ms_range"),
        (DrawnDevices, {"compute_ms_mean": 200.0}, "compute_ms_mean"),
        (DrawnDevices, {"compute_ms_sd": 90.0}, "compute_ms_sd"),
        (DrawnDevices, {"bandwidth_log_sd": 0.0}, "bandwidth_log_sd"),
        (DrawnDevices, {"bandwidth_log_mean": 20.0}, "at least once in 100 times"),
        (DrawnDevices, {"bandwidth_log_mean": float("nan")}, "bandwidth_log_mean"),
    ],
)
def test_configs_refuse(kind: type[Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**changes)


HEAD = "client,compute_ms_per_sample,bandwidth_kbit_per_second"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "devices.csv"
    path.write_text(text)
    return str(path)


def csv_world(tmp_path: Path, text: str) -> WorldRun:
    devices = DeviceTrace(path=written(tmp_path, text))
    return DeviceWorld(num_clients=2, cohort_size=1, devices=devices).start(1)


def test_a_csv_is_the_world_and_its_round_time_is_fedscales(tmp_path: Path) -> None:
    """3 · ms · 20 · 20 / 1000 + 2 · 40,000 kbit / bandwidth, in the order of the ids."""
    run = csv_world(tmp_path, f"{HEAD}\n10,100,8000\n9,20,1000\n")
    assert run.problem.expected_seconds == pytest.approx(np.array([24.0 + 80.0, 120.0 + 10.0]))
    assert run.typical_latency_seconds() == pytest.approx(np.array([104.0, 130.0]))


def test_attributes_that_a_csv_knows_are_not_made_up(tmp_path: Path) -> None:
    run = csv_world(tmp_path, f"{HEAD},cores,memory_gb\n1,100,8000,12,3\n2,20,1000,1,0.5\n")
    attributes = run.problem.attributes
    assert attributes is not None
    np.testing.assert_array_equal(attributes[:, 1:3], [[12, 3], [1, 0.5]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,5\n", "line 2: fewer columns"),
        ("1,5,8\n1,6,9\n", "line 3: client = '1', expected each client once"),
        ("1,0,8\n", "line 2: compute_ms_per_sample = '0'"),
        ("1,-5,8\n", "compute_ms_per_sample = '-5'"),
        ("1,5,nan\n", "bandwidth_kbit_per_second = 'nan'"),
        ("", "has no rows; expected one for each client"),
    ],
)
def test_malformed_tables_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_devices(written(tmp_path, f"{HEAD}\n{rows}"))


def test_a_table_that_is_not_called_one_is_refused(tmp_path: Path) -> None:
    for name, message in (
        ("devices.txt", "ends in '.txt', expected .csv or .parquet"),
        ("client_device_capacity", "is no FedScale trace, CSV or Parquet file"),
    ):
        path = tmp_path / name
        path.write_text(f"{HEAD}\n1,5,8\n")
        with pytest.raises(FedmusterError, match=message) as caught:
            DeviceWorld(devices=DeviceTrace(path=str(path))).start(1)
        assert getattr(caught.value, "key", None) == ("devices", "path")


def dumped(tmp_path: Path, value: object, protocol: int = 2) -> str:
    path = tmp_path / "client_device_capacity"
    path.write_bytes(pickle.dumps(value, protocol))
    return str(path)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_fedscales_capacities_are_read(tmp_path: Path, protocol: int) -> None:
    value = {
        number: {"computation": 10.0 * number, "communication": 5648.109619499134 + number}
        for number in range(2500, 0, -1)
    } | {2501: {"computation": 162, "communication": 2209.6}}
    devices = read_devices(dumped(tmp_path, value, protocol))
    np.testing.assert_array_equal(devices.compute_ms_per_sample[[0, 1, 2500]], [10, 20, 162])
    assert devices.bandwidth_kbit_per_second[1] == 5648.109619499134 + 2
    run = DeviceWorld(num_clients=100, devices=DeviceTrace(path=dumped(tmp_path, value))).start(1)
    seconds = run.problem.expected_seconds
    assert seconds is not None
    assert len(np.unique(seconds)) == 100


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"echo run > {self.path}",)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: {"computation": 5}}, "client 1: has no 'communication'"),
        ({1: {"computation": -5, "communication": 1}}, "client 1: computation must be a number"),
        ({1: {"computation": float("nan"), "communication": 1}}, "client 1: computation must be"),
        ({1: {"computation": 5, "communication": 0}}, "client 1: communication must be a number"),
        ({1: {"computation": "5", "communication": 1}}, "client 1: computation holds a str"),
        ({1: [5, 1]}, "client 1: is a list, expected a dict"),
        ([{"computation": 5}], "holds a list"),
        ({True: {"computation": 5, "communication": 1}}, "client True is not an integer"),
    ],
)
def test_impossible_capacities_are_refused(tmp_path: Path, value: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_devices(dumped(tmp_path, value))


def test_a_malicious_capacity_file_runs_nothing(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    path = dumped(tmp_path, {1: {"computation": Malicious(trap), "communication": 1}})
    with pytest.raises(DataError, match=r"client_device_capacity, byte \d+: GLOBAL '\w+.system'"):
        DeviceWorld(num_clients=1, devices=DeviceTrace(path=path)).start(1)
    assert not trap.exists()
