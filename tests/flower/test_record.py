"""What a federation puts on record is all there after ``kill -9``, and nothing else is believed."""

import random
import time
import zipfile
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord
from hypothesis import given
from hypothesis import strategies as st
from tests.forks import FORKS

from fedmuster import BSFL, POLICIES, Random
from fedmuster.core.errors import ConfigError, InUseError, StateError
from fedmuster.experiments.journal import JournalReader, standing
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import RoundRow
from fedmuster.flower import plain_files
from fedmuster.flower import run_record as records
from fedmuster.flower.run_record import Record, Saved, client_table
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.mechanisms import Gaussian
from fedmuster.training.trainer import LearningRow
from fedmuster.worlds import BSFLRates
from fedmuster.worlds.real_federation import RealFederation

CELL = Experiment(
    policies={"bsfl": BSFL(alpha=2.0)},
    world=RealFederation(cohort_size=2, deadline_seconds=30.0),
    rounds=10_000,
    seeds=(3,),
    regret=False,
)

MODEL = "muster-model-a.npz"


def num_clients(number: int) -> int:
    """A newcomer in every fifth round."""
    return 3 + number // 5


def model(number: int) -> ArrayRecord:
    return ArrayRecord(
        {
            "weight": Array(np.full((5, 4), number, dtype=np.float32)),
            "odd name/../é": Array("bfloat16", (2,), "my.own", number.to_bytes(4, "big")),
        }
    )


def saved(number: int) -> Saved:
    return Saved(
        round=number,
        elapsed_seconds=1.5 * number,
        selector=b"selector %d" % number,
        model=model(number),
        strategy=b"strategy %d" % number,
        parts={"roster": b"roster %d" % number, "clock": b""},
    )


def row(number: int) -> RoundRow:
    return RoundRow(
        round=number,
        seconds=1.5,
        reward=np.nan,
        regret=np.nan,
        num_available=num_clients(number),
        num_completed=2,
        num_refused=0,
        clients=np.array([0, num_clients(number) - 1]),
        learning=LearningRow(train_loss=1 / number, num_aggregated=2),
        scores={"index": np.arange(num_clients(number), dtype=np.float64)},
    )


def clients(number: int) -> dict[str, Any]:
    count = num_clients(number)
    return client_table(
        identities=[f"client-{place}" for place in range(count)],
        cohort_size=2,
        latency_seconds=np.full(count, 2.0),
    )


def commit(record: Record, number: int) -> None:
    metrics = MetricRecord({"train_loss": 1 / number})
    record.commit(row(number), saved(number), clients=clients(number), metrics=metrics)


def assert_same(found: Saved | None, expected: Saved) -> None:
    assert found is not None
    for name in ("round", "elapsed_seconds", "selector", "model", "strategy", "budget", "parts"):
        assert getattr(found, name) == getattr(expected, name), name


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    with Record.open(folder, CELL) as record:
        run = record.run
        assert record.saved is None
        record.commit(None, saved(0), clients=clients(0))
        for number in (1, 2):
            commit(record, number)
    with Record.open(folder, CELL) as record:
        assert record.run == run
        assert record.cell == CELL
        assert_same(record.saved, saved(2))
    journal = JournalReader(folder)
    assert journal.columns["round"].tolist() == [1, 2]
    assert [version["flwr"] for version in journal.versions] == [metadata.version("flwr")] * 2
    assert Experiment.load(folder / "spec.toml") == CELL


def test_numpy_opens_the_model(tmp_path: Path) -> None:
    with Record.open(tmp_path, CELL) as record:
        commit(record, 1)
    with np.load(tmp_path / MODEL) as archive:
        np.testing.assert_array_equal(archive["weight"], np.ones((5, 4), dtype=np.float32))


def test_every_start_is_counted_and_a_crash_before_the_first_round_costs_nothing(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        with Record.open(tmp_path, CELL) as record:
            assert record.saved is None
    assert len(JournalReader(tmp_path).versions) == 2
    assert standing(tmp_path).rounds == 0


def test_evaluations_are_added_to_their_round_and_to_the_result(tmp_path: Path) -> None:
    with Record.open(tmp_path, CELL) as record:
        first = MetricRecord({"loss": 3.0})
        record.evaluated(0, "evaluate_metrics_serverapp", first, loss=3.0)
        commit(record, 1)
        by_clients = MetricRecord({"loss": 2.5, "accuracy": 0.5, "histogram": [1, 2]})
        record.evaluated(1, "evaluate_metrics_clientapp", by_clients, loss=2.5, accuracy=0.5)
        by_server = MetricRecord({"loss": 2.0})
        record.evaluated(1, "evaluate_metrics_serverapp", by_server, loss=2.0)
    with Record.open(tmp_path, CELL) as record:
        commit(record, 2)
        result = record.result(model(2))
    assert result.arrays == model(2)
    assert result.train_metrics_clientapp == {1: {"train_loss": 1.0}, 2: {"train_loss": 0.5}}
    assert result.evaluate_metrics_clientapp == {1: by_clients}
    assert result.evaluate_metrics_serverapp == {0: first, 1: by_server}
    columns = JournalReader(tmp_path).columns
    np.testing.assert_array_equal(columns["loss"], [2.0, np.nan])
    np.testing.assert_array_equal(columns["accuracy"], [0.5, np.nan])


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    with Record.open(tmp_path, CELL), pytest.raises(StateError, match="is in use"):
        Record.open(tmp_path, CELL)
    Record.open(tmp_path, CELL).__exit__(None, None, None)  # free again


def test_a_folder_that_another_process_closes_soon_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Record.open(tmp_path, CELL)
    told: list[str] = []

    def close_it(text: str) -> None:
        told.append(text)
        other.__exit__(None, None, None)

    monkeypatch.setattr(records, "say", close_it)
    monkeypatch.setattr(records, "_LOOK_SECONDS", 0.001)
    with Record.open(tmp_path, CELL, wait_seconds=60.0) as record:
        commit(record, 1)
    assert told == [
        f"{tmp_path} is in use: another process is running it: waiting until it ends, 60 s at most"
    ]


def test_who_has_waited_for_a_folder_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(records, "say", told.append)
    monkeypatch.setattr(records, "_LOOK_SECONDS", 0.001)
    with (
        Record.open(tmp_path, CELL),
        pytest.raises(InUseError, match=r"is in use.*`flwr list`.*`flwr stop`"),
    ):
        Record.open(tmp_path, CELL, wait_seconds=0.05)
    assert len(told) == 1


def test_why_a_run_ended_is_remembered(tmp_path: Path) -> None:
    with Record.open(tmp_path, CELL) as record:
        record.commit(row(1), saved(1), clients=clients(1), ending="privacy ends the run")
    with Record.open(tmp_path, CELL) as record:
        assert record.ending == "privacy ends the run"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (replace(CELL, policies={"bsfl": BSFL(alpha=3.0)}), "policy.alpha was 2.0 and is 3.0"),
        (replace(CELL, policies={"random": Random()}), "policy.name was 'bsfl' and is 'random'"),
        (replace(CELL, seeds=(4,)), "seeds was 3 and is 4"),
        (replace(CELL, world=RealFederation(cohort_size=3)), "world.cohort_size was 2 and is 3"),
        (
            replace(CELL, privacy=Privacy(epsilon=2.0, mechanism=Gaussian(clip=1.0, delta=1e-5))),
            "privacy was None and is {",
        ),
    ],
)
def test_another_run_is_refused(tmp_path: Path, changed: Experiment, says: str) -> None:
    with Record.open(tmp_path, CELL) as record:
        commit(record, 1)
    with pytest.raises(StateError, match="another folder") as error:
        Record.open(tmp_path, changed)
    assert says in str(error.value)
    with Record.open(tmp_path, CELL) as record:
        assert_same(record.saved, saved(1))


def test_a_simulation_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path, replace(CELL, world=BSFLRates(), rounds=2))
    execute(tmp_path)
    with pytest.raises(StateError, match=r"world\.name was 'bsfl-rates' and is 'federation'"):
        Record.open(tmp_path, CELL)


@pytest.mark.parametrize(("asked", "written"), [(20, 20), (5, 5), (1, 3)])
def test_the_number_of_rounds_may_change(tmp_path: Path, asked: int, written: int) -> None:
    """But never below what is done."""
    with Record.open(tmp_path, replace(CELL, rounds=10)) as record:
        for number in (1, 2, 3):
            commit(record, number)
    with Record.open(tmp_path, replace(CELL, rounds=asked)) as record:
        assert record.cell.rounds == written
    assert Experiment.load(tmp_path / "spec.toml").rounds == written


def test_a_spec_that_is_gone_is_not_made_up(tmp_path: Path) -> None:
    with Record.open(tmp_path, CELL) as record:
        commit(record, 1)
    (tmp_path / "spec.toml").unlink()
    with pytest.raises(StateError, match=r"spec\.toml is gone.*restore it"):
        Record.open(tmp_path, CELL)


def test_a_ledger_is_the_same_file_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    privacy = Privacy(
        epsilon=2.0, mechanism=Gaussian(clip=1.0, delta=1e-5), ledger="shared/ledger.sqlite"
    )
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with Record.open(tmp_path / "run", replace(CELL, privacy=privacy)) as record:
            assert record.cell.ledger(tmp_path / "run") == tmp_path / "shared" / "ledger.sqlite"
    with pytest.raises(ConfigError, match="is not simulated: Flower runs it"):
        record.cell.world.start(0)


def test_a_model_that_is_gone_is_missed(tmp_path: Path) -> None:
    with Record.open(tmp_path, CELL) as record:
        commit(record, 1)
    (tmp_path / MODEL).unlink()
    with pytest.raises(StateError, match=r"muster-model-a\.npz is gone.*restore it from a copy"):
        Record.open(tmp_path, CELL)


def test_a_model_of_another_run_or_round_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with Record.open(tmp_path / name, CELL) as record:
            commit(record, 1)
    foreign = (tmp_path / "one" / MODEL).read_bytes()
    (tmp_path / "two" / MODEL).write_bytes(foreign)
    with pytest.raises(StateError, match=r"holds the model after round 1 of run .* restore"):
        Record.open(tmp_path / "two", CELL)
    with zipfile.ZipFile(tmp_path / "one" / MODEL, "w") as archive:
        archive.writestr("weight.npy", b"something else")
    with pytest.raises(StateError, match="damaged or no model of fedmuster"):
        Record.open(tmp_path / "one", CELL)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("image") / MODEL
    plain_files.write(path, plain_files.Kept(model(1), b"memory"), run="run", round_number=1)
    return path.read_bytes()


@given(data=st.data())
def test_a_bent_model_is_refused_or_read_right(
    tmp_path_factory: pytest.TempPathFactory, image: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "bent.npz"
    bent = bytearray(image[: data.draw(st.integers(0, len(image)))])
    if len(bent) == len(image) or data.draw(st.booleans()):
        bent = bytearray(image)
        for _ in range(data.draw(st.integers(1, 3))):
            bent[data.draw(st.integers(0, len(bent) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bent)
    # A flip may be in what zip does not need, such as a date.
    with suppress(StateError):
        assert plain_files.read(path, run="run", round_number=1) == (model(1), b"memory")


def test_a_smaller_model_leaves_nothing_of_a_larger_one(tmp_path: Path) -> None:
    path = tmp_path / MODEL
    for size in (1000, 10):
        kept = plain_files.Kept(ArrayRecord([np.arange(size)]), b"")
        plain_files.write(path, kept, run="run", round_number=size)
        assert plain_files.read(path, run="run", round_number=size) == kept


def test_clients_that_never_answered_get_the_usual_latency() -> None:
    table = client_table(
        identities=["a", "b", "c"], cohort_size=1, latency_seconds=np.array([1.0, np.nan, 4.0])
    )
    assert table["typical_latency_seconds"].tolist() == [1.0, 2.5, 4.0]
    assert table["answered"].tolist() == [True, False, True]
    nobody = client_table(identities=["a"], cohort_size=1, latency_seconds=np.array([np.nan]))
    assert nobody["typical_latency_seconds"].tolist() == [1.0]


def commit_for_ever(folder: Path, started: Any) -> None:
    """What a ServerApp does, without the waiting."""
    with Record.open(folder, CELL) as record:
        done = 0 if record.saved is None else record.saved.round
        started.set()
        for number in range(done + 1, CELL.rounds):
            commit(record, number)
            metrics = MetricRecord({"loss": float(number)})
            record.evaluated(number, "evaluate_metrics_serverapp", metrics, loss=float(number))


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    luck = random.Random(11)
    done = 0
    for kills in range(1, 12):
        started = FORKS.Event()
        server = FORKS.Process(target=commit_for_ever, args=(tmp_path, started))
        server.start()
        if kills % 4 == 1 and done > 0:  # while it opens the folder
            time.sleep(luck.uniform(0.0, 0.05))
        else:
            assert started.wait(60)
            enough = done + luck.randrange(12)
            while standing(tmp_path).rounds < enough:
                assert server.is_alive()
                time.sleep(0.001)
            time.sleep(luck.uniform(0.0, 0.01))
        server.kill()
        server.join()
        assert server.exitcode == -9

        before, done = done, standing(tmp_path).rounds
        assert done >= before
        if done == 0:
            continue
        rounds = list(range(1, done + 1))
        journal = JournalReader(tmp_path)
        assert journal.columns["round"].tolist() == rounds
        assert np.isnan(journal.columns["loss"]).sum() <= kills  # of the last round before each
        assert len(journal.clients["identity"]) == num_clients(done)
        assert journal.scores["index"].shape == (done, num_clients(done))
        with Record.open(tmp_path, CELL) as record:
            assert_same(record.saved, saved(done))
            assert list(record.result(model(0)).train_metrics_clientapp) == rounds
        assert len(list(tmp_path.glob("*model*"))) == 2
    assert done > 20


def test_the_policies_that_can_run_have_specs_that_are_read_back(tmp_path: Path) -> None:
    for name in ("bsfl", "oort", "pause", "random", "tifl", "refl", "linucb"):
        cell = replace(CELL, policies={name: POLICIES[name]()})
        with Record.open(tmp_path / name, cell):
            pass
        assert Experiment.load(tmp_path / name / "spec.toml") == cell
