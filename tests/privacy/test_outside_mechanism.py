"""A mechanism and a schedule from outside, in one file: every statement about them is their own."""

import json
import math
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fedmuster.core.config import from_text
from fedmuster.core.errors import ConfigError, UnknownNameError
from fedmuster.core.streams import NOISE, stream
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.ledger import verify
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE
from fedmuster.privacy.mechanisms import MECHANISMS, currency_of, received_mechanism
from fedmuster.privacy.randomness import seeded_bytes
from fedmuster.privacy.schedules import SCHEDULES
from fedmuster.report import figures
from fedmuster.report.page import to_html
from fedmuster.report.page_data import page_data
from fedmuster.report.promise import in_words
from fedmuster.report.runs import load
from fedmuster.report.summary import summarise
from fedmuster.report.tables import tables, to_markdown

SOURCE = '''
"""Gaussian differential privacy, counted as µ², and a schedule in two steps."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmuster.privacy.accounting import Currency
from fedmuster.privacy.mechanisms import Mechanism


def epsilon_of(mu_squared, delta):
    """Dong, Roth and Su (2022), Corollary 1: the ε with which µ-GDP is (ε, δ)-DP."""
    mu = math.sqrt(mu_squared)
    phi = lambda x: math.erfc(-x / math.sqrt(2)) / 2
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        tail = phi(-middle / mu - mu / 2)
        excess = phi(-middle / mu + mu / 2) - (math.exp(middle + math.log(tail)) if tail else 0)
        low, high = (middle, high) if excess > delta else (low, middle)
    return high


@dataclass(frozen=True, kw_only=True, slots=True)
class BellCurve(Mechanism):
    """For this test only: its noise is not safe against floating-point attacks."""

    name: ClassVar[str] = "bell-curve"
    noise: ClassVar[str] = "bell-shaped"
    currencies: ClassVar[tuple[Currency, ...]] = (
        Currency(
            key="mu-squared",
            symbol="µ²",
            measure="GDP",
            methods={"gdp": lambda amounts, delta: epsilon_of(math.fsum(amounts), delta)},
        ),
    )

    radius: float = 1.0
    delta: float = 1e-5

    @property
    def sensitivity(self):
        return 2 * self.radius

    @property
    def procedure(self):
        return f"Updates are scaled to a norm of {self.radius:g} and get bell-shaped noise."

    def cap(self, epsilon):
        low, high = 0.0, 1e3
        for _ in range(200):
            middle = (low + high) / 2
            fits = epsilon_of(middle, self.delta) <= epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low

    def noise_scale(self, amount):
        return self.sensitivity / math.sqrt(amount)

    def release(self, update, amount, random_bytes):
        clipped = update / max(1.0, float(np.linalg.norm(update)) / self.radius)
        generator = np.random.default_rng(int.from_bytes(random_bytes(16)))
        return clipped + generator.normal(scale=self.noise_scale(amount), size=len(clipped))

    def whole_vector_epsilon(self, amount, num_coordinates):
        return epsilon_of(amount, self.delta)


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoSteps:
    name: ClassVar[str] = "two-steps"

    first: float = 0.75

    def spent_share(self, count):
        return np.array([0.0, self.first, 1.0])[np.minimum(count, 2)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pretender(BellCurve):
    """Its ledgers would be taken for those of Laplace noise."""

    name: ClassVar[str] = "pretender"
    currencies: ClassVar[tuple[Currency, ...]] = (Currency(key="epsilon", symbol="ε"),)
'''
SPEC = """
rounds = 6
[world]
name = "pause-groups"
num_clients = 8
cohort_size = 2
[training]
model = { name = "mlp", hidden = [4] }
evaluate_every = 2
[privacy]
epsilon = 8.0
noise = "secure"
mechanism = { name = "FILE:BellCurve", radius = 0.5 }
schedule = { name = "FILE:TwoSteps" }
[[policy]]
name = "random"
"""
OTHERS = ("Laplace", "Gaussian", "zCDP", "ρ", "coordinate", "rdp")
"""Words that are true of other mechanisms only."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outside") / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(file: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_FOLDER_VARIABLE, str(file.parent / "state"))
        table = tomllib.loads(SPEC.replace("FILE", str(file)))
        prepare(file.parent / "run", Experiment.from_table(table))
        execute(file.parent / "run")
    return file.parent / "run"


def test_reports_and_pages_say_what_the_mechanism_says(run: Path, file: Path) -> None:
    comparison = load([run])
    privacy = comparison.privacy
    assert privacy is not None
    mechanism = privacy.mechanism
    cap = mechanism.cap(8.0)
    assert comparison.notes[-1] == (
        "privacy: ε ≤ 8, δ = 1e-05 per client (bell-shaped), ledger kept"
    )
    summary = summarise(comparison)
    (policy,) = summary.policies
    spent = policy.values["spent_max_at_end"][0]
    assert spent == pytest.approx(cap, rel=1e-6)
    assert policy.values["whole_update_epsilon_at_end"][0] == pytest.approx(8.0, rel=1e-6)
    shown = next(table for table in tables(summary) if "privacy" in table.title)
    assert shown.columns[1:4] == (
        "Largest µ² (GDP) spent",
        "Mean µ² (GDP) spent",
        "As ε of whole updates",
    )
    procedure, paid, promised = in_words(comparison.experiment, comparison.num_parameters)
    assert procedure == mechanism.procedure
    assert "two-steps schedule (first = 0.75)" in paid
    assert promised == (
        f"The cap: bell-shaped: µ² = {cap:,.6g} of GDP is ε = 8 of the update at δ = 1e-05."
    )
    (axes, *_) = figures.leakage(comparison).axes
    assert axes.get_ylabel() == "largest µ² (GDP) spent by a client"
    assert [text.get_text() for text in axes.texts] == [f"cap µ² = {cap:.3g} (ε = 8, δ = 1e-05)"]
    page = json.dumps(page_data(summary), ensure_ascii=False) + to_html(summary).split("<script")[0]
    for text in (to_markdown(tables(summary)), page):
        assert not [word for word in OTHERS if word in text]
        assert "µ²" in text


def _ledger(*arguments: object, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, STATE_FOLDER_VARIABLE: str(path / "state")}
    environment["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(path)])
    command = [sys.executable, "-m", "fedmuster", "ledger", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, check=False
    )


def test_a_ledger_without_its_mechanism_is_shown_as_it_is_recorded(run: Path, file: Path) -> None:
    ledger = run / LEDGER_NAME
    assert verify(ledger).faults == []
    assert currency_of("mu-squared") is None
    done = _ledger("show", ledger, path=file.parent)
    assert done.returncode == 0, done
    assert "a ledger of real budgets in mu-squared" in done.stdout
    assert "no mechanism that is known here counts mu-squared" in done.stdout
    assert not [word for word in (*OTHERS, "ε", "µ²") if word in done.stdout]
    spender = re.findall(r"client-\d+", done.stdout)[0]
    done = _ledger("show", ledger, "--client", spender, "--delta", 1e-5, path=file.parent)
    assert done.returncode == 2
    assert "mu-squared" in done.stderr


def test_a_ledger_asks_its_mechanism(run: Path, file: Path) -> None:
    """Named on the command line, or registered by an installed package."""
    ledger, address = run / LEDGER_NAME, f"{file}:BellCurve"
    named = _ledger("show", ledger, "--mechanism", address, path=file.parent)
    assert "it counts µ² (GDP) of the update" in named.stdout
    spender = re.findall(r"client-\d+", named.stdout)[0]
    package = file.parent / "mine-1.dist-info"
    package.mkdir(exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        "[fedmuster.mechanisms]\nbell-curve = mine:BellCurve\n"
    )
    arguments = ("show", ledger, "--client", spender, "--delta", 1e-5)
    done = _ledger(*arguments, path=file.parent)
    assert done.returncode == 0, done
    assert "is ε = 8 of the update at δ = 1e-05, composed by gdp" in done.stdout
    done = _ledger(*arguments, "--method", "rdp", path=file.parent)
    assert done.returncode == 2
    assert "gdp" in done.stderr


def test_a_key_means_one_thing(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Privacy(mechanism=from_text(MECHANISMS, f"{file}:Pretender"))
    assert caught.value.key == ("mechanism",)


def test_names_from_another_machine_import_nothing(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        received_mechanism({"name": f"{file}:BellCurve"})
    assert caught.value.key == ("mechanism", "name")
    with pytest.raises(UnknownNameError):
        received_mechanism({"name": "bell-curve"})
    assert received_mechanism({"name": "gaussian", "clip": 2.0}).sensitivity == 4.0


def test_facts_that_every_registered_mechanism_declares(file: Path) -> None:
    outside = from_text(MECHANISMS, f"{file}:BellCurve")
    assert "two-steps" not in SCHEDULES
    for mechanism in (outside, *(kind() for kind in MECHANISMS.values())):
        assert mechanism.currency in mechanism.currencies
        assert mechanism.sensitivity > 0
        assert 0 <= mechanism.delta < 1
        assert mechanism.procedure.endswith(".")
        assert mechanism.noise in mechanism.variant
        cap = mechanism.cap(3.0)
        assert mechanism.whole_vector_epsilon(cap, 1) == pytest.approx(3.0, rel=1e-6)
        half, _ = mechanism.currency.compose([cap / 2], mechanism.delta or 1e-9)
        whole, method = mechanism.currency.compose([cap / 2, cap / 2], mechanism.delta or 1e-9)
        assert method == next(iter(mechanism.currency.methods))
        assert 0 < half < whole <= 3.0 * (1 + 1e-9)
        noisy = mechanism.release(np.zeros(2_000), cap, seeded_bytes(stream(0, NOISE)))
        assert math.sqrt(2) * mechanism.noise_scale(cap) > 0.9 * noisy.std() > 0
