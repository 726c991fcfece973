"""The private mod around a real ClientApp: what leaves, what must not, and never twice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from tests.flower.private_app import (
    KINDS,
    MODEL,
    MODS,
    SHARP,
    Arrays,
    Training,
    app_that,
    arrays_of,
    everything_in,
    grid_of,
    received,
    send,
    train_a_bit,
)

from fedmuster.core.errors import ConfigError
from fedmuster.flower.client_vault import VaultContents
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.reporting_mod import ReportingMod
from fedmuster.flower.wire import RECORD, Ask, Facts, PrivacyGrant, Release, Report, question
from fedmuster.privacy.mechanisms import Gaussian, Laplace, Mechanism


def test_the_update_is_clipped_as_one_vector() -> None:
    old, new = MODEL, received(send(grid_of(app_that(train_a_bit))))
    norm = np.sqrt(6 * 2.0**2 + 1.0**2)
    np.testing.assert_allclose(new["weight"], old["weight"] + 2.0 / norm, atol=1e-2)
    np.testing.assert_allclose(new["scale"], 2.0 + 1.0 / norm, atol=1e-2)
    assert new["weight"].tolist() != (old["weight"] + np.float32(2.0 / norm)).tolist()
    assert new["batches"].tolist() == [3, 4]  # the server's own, not what was counted
    for name, array in old.items():
        assert (new[name].dtype, new[name].shape) == (array.dtype, array.shape)


@pytest.mark.parametrize(
    ("mechanism", "amount"), [(Laplace(clip=2.0), 0.5), (Gaussian(clip=2.0), 0.02)]
)
def test_the_noise_is_what_the_debit_buys(mechanism: Mechanism, amount: float) -> None:
    """σ of 40,000 coordinates has a relative standard error below 0.6 %; 4 % are seven of them."""
    model = {"w": np.zeros(40_000, dtype=np.float32)}
    grid = grid_of(app_that(lambda sent: {"w": sent["w"] + np.float32(1.0)}))
    noisy = received(send(grid, PrivacyGrant.on(mechanism, amount), model=model))["w"]
    spread = mechanism.noise_scale(amount) * (np.sqrt(2.0) if mechanism.name == "laplace" else 1.0)
    assert noisy.std() == pytest.approx(spread, rel=0.04)


def test_no_two_releases_have_the_same_noise() -> None:
    grid = grid_of(app_that(train_a_bit))
    first, second = (received(send(grid, round_=number)) for number in (1, 2))
    assert not np.array_equal(first["weight"], second["weight"])


def test_noise_that_half_precision_cannot_hold_is_cut() -> None:
    model = {"w": np.zeros(1_000, dtype=np.float16)}
    grid = grid_of(app_that(lambda sent: sent))
    noisy = received(send(grid, PrivacyGrant.on(Laplace(clip=100.0), 1e-6), model=model))["w"]
    assert noisy.dtype == np.float16
    assert np.isfinite(noisy).all()
    assert np.abs(noisy).max() == np.finfo(np.float16).max


@pytest.mark.parametrize("mods", [MODS, MODS[::-1], MODS[:1]], ids=["usual", "swapped", "alone"])
def test_nothing_else_leaves(mods: Sequence[Mod]) -> None:
    reply = send(grid_of(app_that(train_a_bit, mods)))
    assert b"SECRET" not in everything_in(reply)
    assert sorted(reply.content) == ["arrays", RECORD, "metrics"]
    assert reply.content.metric_records["metrics"] == {"num-examples": 8}
    assert Release.of(reply.content) == Release(run="r", round=1, amount=1e6)
    report = Report.of(reply.content)
    assert (report is None) == (len(mods) == 1)
    assert report is None or report.signals == {}


def test_what_other_mods_add_stays_too() -> None:
    def chatty(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        Report(compute_seconds=1.5, trained_before=2, signals={"SECRET": 1.0}).into(reply.content)
        reply.content["SECRET"] = ConfigRecord({"SECRET": "SECRET"})
        reply.metadata.group_id = "SECRET"
        return reply

    reply = send(grid_of(app_that(train_a_bit, [PrivateMod(), chatty])))
    assert b"SECRET" not in everything_in(reply)
    assert Report.of(reply.content) == Report(compute_seconds=1.5, trained_before=2)


def test_metrics_are_kept_by_name_and_only_if_they_are_one_number() -> None:
    keep = PrivateMod(keep_metrics=["loss", "num-examples", "absent"])
    reply = send(grid_of(app_that(train_a_bit, [keep])))
    assert reply.content.metric_records["metrics"] == {"loss": 0.125, "num-examples": 8}

    def fine_print(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        reply.content.metric_records["metrics"]["num-examples"] = [1, 2, 3]
        reply.content.metric_records["metrics"]["loss"] = float("nan")
        return reply

    reply = send(grid_of(app_that(train_a_bit, [keep, fine_print])))
    assert reply.content.metric_records["metrics"] == {}


def test_nobody_trains_without_a_grant() -> None:
    def never(model: Arrays) -> Arrays:
        raise AssertionError

    grid = grid_of(app_that(never))
    for grant, complaint in [
        (None, "no grant came with the message"),
        (PrivacyGrant(amount=1.0, mechanism="{}"), "the mechanism cannot be read"),
        (PrivacyGrant.on(Laplace(), 0.0), "without a debit nothing is released"),
        (PrivacyGrant(amount=float("nan"), mechanism="{}"), "amount is nan"),
    ]:
        reply = send(grid, grant)
        assert reply.error.code == 6
        assert complaint in str(reply.error.reason)
    content = RecordDict()
    Ask(run="r", round=1, grant=SHARP).into(content)
    (reply,) = grid.send_and_receive([Message(content, 1, "train")])
    assert "0 ArrayRecords, expected one" in str(reply.error.reason)


def test_no_round_is_released_twice() -> None:
    grid = grid_of(app_that(train_a_bit))
    received(send(grid, round_=3))
    for again in (3, 2, 1):
        assert "nothing is released twice" in str(send(grid, round_=again).error.reason)
    received(send(grid, round_=4))
    received(send(grid, round_=1, run="another"))
    assert send(grid, round_=4).has_error()


def test_the_record_is_written_before_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that dies while it adds the noise has released nothing, and will not for this."""
    file = tmp_path / "releases.json"
    stored = []

    def die(self: Gaussian, update: Any, amount: float, random_bytes: Any) -> None:
        stored.append(VaultContents.of(file.read_bytes()))
        raise MemoryError("SECRET")

    grid = grid_of(app_that(train_a_bit), **{"release-notes": str(file)})
    with monkeypatch.context() as patched:
        patched.setattr(Gaussian, "release", die)
        assert send(grid, round_=2).has_error()
    assert stored == [VaultContents(sequence=1, rounds={"r": 2}, released={"rho": 10**15})]
    assert "released twice" in str(send(grid, round_=2).error.reason)


def _fails(model: Arrays) -> Arrays:
    raise ValueError("SECRET of patient 42")


def _diverges(model: Arrays) -> Arrays:
    return {**model, "weight": np.full_like(model["weight"], np.nan)}


def _overflows(model: Arrays) -> Arrays:
    return {**model, "scale": np.array(np.inf)}


def _renames(model: Arrays) -> Arrays:
    return {"SECRET": model["weight"]}


def _reshapes(model: Arrays) -> Arrays:
    return {**model, "batches": np.arange(42)}


def _retypes(model: Arrays) -> Arrays:
    return {**model, "weight": model["weight"].astype(np.int64)}


def test_failures_of_every_kind_look_alike() -> None:
    """Whether an app failed can be told, but not why, for the why may tell of its data."""
    errors = set()
    for train in (_fails, _renames, _reshapes, _retypes):
        reply = send(grid_of(app_that(train)))
        errors.add((reply.error.code, reply.error.reason))

    def refuses(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        return Message(Error(code=6, reason="SECRET"), reply_to=message)

    reply = send(grid_of(app_that(train_a_bit, [PrivateMod(), refuses])))
    errors.add((reply.error.code, reply.error.reason))
    ((code, reason),) = errors
    assert code == 2
    assert "SECRET" not in str(reason)


@pytest.mark.parametrize("train", [_diverges, _overflows])
def test_a_training_that_diverges_sends_noise_around_nothing(train: Training) -> None:
    """That it did would tell of the data, so it cannot be told from one that learnt nothing."""
    moved = [received(send(grid_of(app_that(train)))) for _ in range(2)]
    for name in ("weight", "scale"):
        assert np.isfinite(moved[0][name]).all()
        assert not np.array_equal(moved[0][name], moved[1][name])


def test_a_failed_training_may_be_tried_again() -> None:
    fate: list[Training] = [train_a_bit, _fails, _renames]
    grid = grid_of(app_that(lambda model: fate.pop()(model)))
    assert send(grid).has_error()
    assert send(grid).has_error()
    received(send(grid))


@pytest.mark.parametrize(
    "model", [{"n": np.arange(3)}, {"z": np.zeros(2, dtype=np.complex128)}], ids=["int", "complex"]
)
def test_models_without_noise_of_their_kind_do_not_leave(model: Arrays) -> None:
    assert send(grid_of(app_that(lambda sent: sent)), model=model).error.code == 2


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_replies_that_nobody_pays_for_are_refused(kind: str) -> None:
    message = Message(RecordDict({"arrays": arrays_of(MODEL)}), 1, kind)
    (reply,) = grid_of(app_that(train_a_bit)).send_and_receive([message])
    assert f'PrivateMod(unprotected=["{kind}"])' in str(reply.error.reason)
    public: list[Mod] = [PrivateMod(unprotected=[kind]), ReportingMod()]
    message = Message(RecordDict({"arrays": arrays_of(MODEL)}), 1, kind)
    (reply,) = grid_of(app_that(train_a_bit, public)).send_and_receive([message])
    assert reply.content.metric_records["m"] == {"loss": 0.125}


@pytest.mark.parametrize("kind", KINDS)
def test_who_the_client_is_may_be_told(kind: str) -> None:
    def chatty(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        reply.content["SECRET"] = ConfigRecord({"SECRET": "SECRET"})
        return reply

    mods: list[Mod] = [PrivateMod(), chatty, ReportingMod()]
    grid = grid_of(app_that(train_a_bit, mods), **{"client-id": "ward-7"})
    (reply,) = grid.send_and_receive([question(1, kind=kind)])
    assert Facts.of(reply.content) == Facts(client_id="ward-7")
    assert list(reply.content) == [RECORD]


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_that_reaches_the_app_brings_nothing_out(kind: str) -> None:
    app = ClientApp(mods=[PrivateMod()])
    fate = ["raise", "answer"]

    @app.train()
    @app.evaluate()
    @app.query()
    def answer(message: Message, context: Context) -> Message:
        if fate.pop() == "raise":
            raise ValueError("SECRET")
        return Message(RecordDict({"m": MetricRecord({"SECRET": 1.0})}), reply_to=message)

    grid = grid_of(app)
    for _ in range(2):
        (reply,) = grid.send_and_receive([question(1, kind=kind)])
        assert "no ReportingMod" in str(reply.error.reason)
        assert b"SECRET" not in everything_in(reply)


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="unprotected"):
        PrivateMod(unprotected=["train"])
    with pytest.raises(ConfigError, match="unprotected"):
        PrivateMod(unprotected="evaluate")
    with pytest.raises(ConfigError, match="keep_metrics"):
        PrivateMod(keep_metrics="num-examples")
