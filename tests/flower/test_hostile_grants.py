"""10,000 grants of a dishonest server: nothing leaves but what the client's own limit allows."""

import json
import logging
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.random import Generator
from numpy.typing import NDArray
from tests.flower.private_app import app_that, arrays_of, everything_in, grid_of

from fedmuster.core.config import to_table
from fedmuster.core.streams import stream
from fedmuster.flower.client_vault import VaultContents
from fedmuster.flower.in_process import InProcessGrid
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.wire import RECORD
from fedmuster.privacy.mechanisms import Gaussian, Laplace, Mechanism
from fedmuster.privacy.schedules import UNITS_PER_ONE

_GRANTS = 10_000
_MODEL = {"w": np.array([1.0, -2.0], dtype=np.float32)}
_TRAINED = np.array([12345.678, -87654.321], dtype=np.float32)  # tells of the data
_ERRORS = (2, 6)  # the app failed; a mod refused

_AMOUNTS: tuple[Any, ...] = (
    *(0, -1, 0.0, -0.0, -1e-9, -1e6, 1e-10, 9.99e-10, 1e6, 1e9, 1e300, 2**62, -(2**62), 2**64),
    *(math.nan, math.inf, -math.inf, 5e-324, 1.7e308, 10**400, -(10**400)),
    *(True, False, "1", "nan", "", b"1", b"", [], [0.001], ["1"], [True], [math.nan]),
)
_ROUNDS: tuple[Any, ...] = (0, -1, 1.0, 2**62 + 1, 10**400, True, "1", b"1", [1], math.nan)
_RUNS: tuple[Any, ...] = ("", "x" * 201, "line\nbreak", "\x00", "\ud800", 7, 1.5, True, b"r", ["r"])
_CLIPS = ("0", "-1", "NaN", "Infinity", "1e-300", "1e300", "1" + "0" * 400, "true", '"1"', "[1]")
_MECHANISMS: tuple[Any, ...] = (
    *("", "{}", "[]", "null", "1", '"laplace"', '"gaussian"', "not JSON", "[" * 3_900, "x" * 4_001),
    *(
        '{"name": "os:system"}',
        '{"name": "./evil.py:Evil"}',
        '{"name": ["laplace"]}',
        '{"clip": 1}',
    ),
    '{"name": "laplace", "clip": 1.0, "noise": false}',
    '{"name": "gaussian", "clip": 1.0, "delta": 2.0}',
    '{"name": "laplace", "mode": "per-coordinate", "clip": 1.0}',
    *(f'{{"name": "{name}", "clip": {c}}}' for name in ("laplace", "gaussian") for c in _CLIPS),
    *(3, 1.5, True, b"{}", ["{}"]),
)


class Grant(NamedTuple):
    """The fields of a grant, of which any may be wrong; None where a field is missing."""

    run: Any
    round: Any
    amount: Any
    mechanism: Any


class Server:
    """Makes grants, most of them wrong in one way or another, and notes what came of them."""

    def __init__(self, own: Mechanism, seed: int) -> None:
        self._own = json.dumps(to_table(own))
        self._draw: Generator = stream(seed, "hostile grants")
        self._earlier: list[Grant] = []
        self.units_released = 0
        self.outcomes: Counter[str] = Counter()

    def grant(self) -> Grant:
        """A grant as an honest server might make it, and then perhaps spoilt."""
        draw = self._draw
        units = int(10 ** draw.uniform(0, 7.5))
        fraction = float(draw.choice([0.0, 0.0, 0.25, 0.5, 0.9]))
        amount = float((units + Fraction(fraction)) / UNITS_PER_ONE)
        run = f"run {draw.integers(10**12)}" if draw.random() < 0.7 else "one run"
        honest = Grant(run, int(draw.integers(1, 10**6)), amount, self._own)
        if self._earlier and draw.random() < 0.1:  # replayed, or a round that goes back
            earlier = self._earlier[draw.integers(len(self._earlier))]
            return earlier._replace(round=max(1, earlier.round - int(draw.integers(3))))
        if draw.random() < 0.35:
            self._earlier.append(honest)
            return honest
        spoilt = {
            "run": _RUNS,
            "round": _ROUNDS,
            "amount": (*_AMOUNTS, *10 ** draw.uniform(0, 6, size=8)),
            "mechanism": _MECHANISMS,
        }
        for field in draw.choice(list(spoilt), size=draw.integers(1, 3)):
            choices = (None, *spoilt[field])
            honest = honest._replace(**{field: choices[draw.integers(len(choices))]})
        return honest

    def message(self, grant: Grant) -> Message:
        """The message, at times with more than a grant, or with a model that is none."""
        draw = self._draw
        record = {f"ask.{key}": each for key, each in grant._asdict().items() if each is not None}
        if draw.random() < 0.1:
            record["ask.clip"], record["ask.currency"] = 1e9, "none"
            record["release.amount"], record["report.signal.w"] = 1e-9, math.nan
        if draw.random() < 0.05:
            record["ask.measure-gain"] = 7
        content = RecordDict({"arrays": self._model()})
        if draw.random() < 0.05:
            content["more"] = self._model()
        content[RECORD] = ConfigRecord(record)
        if draw.random() < 0.02:
            content[RECORD] = MetricRecord({"ask.amount": 1.0})
        return Message(content, 1, "train")

    def _model(self) -> ArrayRecord:
        kind = self._draw.integers(40)
        if kind == 0:
            return ArrayRecord({"w": Array("float32", (2,), "numpy.ndarray", b"no array")})
        if kind == 1:
            return ArrayRecord({"w": Array("float32", (2,), "pickle", b"\x80\x04N.")})
        strange: list[NDArray[Any]] = [
            np.array([np.nan, np.inf], dtype=np.float32),
            np.array([3.4e38, -3.4e38], dtype=np.float32),
            np.array([1.7e308, -1.7e308]),
            np.zeros(0),
            np.array([1, 2]),
            np.array([1j, 2]),
            np.array(["SECRET"]),
        ]
        return arrays_of({"w": strange[kind - 2]} if kind - 2 < len(strange) else _MODEL)

    def note(self, grant: Grant, reply: Message) -> None:
        """Check what left the client, and count what it cost."""
        assert b"SECRET" not in everything_in(reply)
        if reply.has_error():
            assert reply.error.code in _ERRORS, reply.error
            reason = str(reply.error.reason)
            assert reason.startswith("fedmuster: "), reason
            assert "Traceback" not in reason
            assert not any(number in reason for number in ("12345.6", "87654.3"))
            self.outcomes["failed" if reply.error.code == 2 else "refused"] += 1
            return
        assert grant.mechanism == self._own
        assert isinstance(grant.amount, int | float)
        nearest = round(grant.amount * UNITS_PER_ONE)
        exact = nearest if nearest / UNITS_PER_ONE == grant.amount else None
        self.units_released += (
            math.floor(Fraction(grant.amount) * UNITS_PER_ONE) if exact is None else exact
        )
        self.outcomes["released"] += 1


def _node(mechanism: Mechanism, max_epsilon: float, file: Path) -> InProcessGrid:
    def train(model: Any) -> dict[str, NDArray[Any]]:
        if model["w"].shape != (2,) or model["w"].dtype.kind != "f":
            raise ValueError("SECRET: 12345.678")
        return {"w": _TRAINED.astype(model["w"].dtype)}

    mod = PrivateMod(mechanism=mechanism, max_epsilon=max_epsilon)
    return grid_of(app_that(train, [mod]), **{"release-notes": str(file)})


@pytest.mark.parametrize(
    ("mechanism", "max_epsilon"), [(Laplace(clip=0.5), 1.0), (Gaussian(clip=2.0, delta=1e-6), 7.0)]
)
def test_ten_thousand_hostile_grants(
    mechanism: Mechanism, max_epsilon: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "flwr")  # to print thousands of refusals takes seconds
    file = tmp_path / "releases.json"
    server = Server(mechanism, seed=20)
    cap_units = math.floor(mechanism.cap(max_epsilon) * UNITS_PER_ONE)
    grid = _node(mechanism, max_epsilon, file)
    for number in range(_GRANTS // 2):
        if number % 500 == 499:
            grid = _node(mechanism, max_epsilon, file)  # the SuperNode starts again
        grant = server.grant()
        (reply,) = grid.send_and_receive([server.message(grant)])
        server.note(grant, reply)
        assert server.units_released <= cap_units
    released = VaultContents.of(file.read_bytes()).released
    assert released == {mechanism.currency.key: server.units_released}
    assert server.units_released > 0.99 * cap_units  # the server gets to the limit
    assert min(server.outcomes[each] for each in ("failed", "refused", "released")) > 20
