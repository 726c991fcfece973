"""Runs with a [privacy] table: what they spend, what they withhold, how they end and go on."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.training.toy_federation import play_round

from fedmuster import PAUSE, AllClients, ClusteredSampling, PowerOfChoice, Random
from fedmuster.core.errors import BudgetError, ConfigError, LedgerError
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, IntArray
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.ledger import Ledger
from fedmuster.privacy.mechanisms import Laplace
from fedmuster.privacy.schedules import Geometric, Uniform
from fedmuster.training.models import MLP
from fedmuster.training.networks import BSFLCNN
from fedmuster.training.training import Training
from fedmuster.worlds import PauseGroups

SPEC = """\
rounds = 5
seeds = [0, 1]

[world]
name = "pause-groups"

[privacy]
epsilon = 40.0
schedule = { name = "uniform", participations = 3 }
mechanism = { name = "laplace", mode = "per-coordinate", clip = 0.006 }

[[policy]]
name = "pause"

[[policy]]
name = "all-clients"
label = "without"
private = false
"""


def cell(policy: Policy[Any] | None = None, **changes: Any) -> Experiment:
    chosen = PAUSE() if policy is None else policy
    settings: dict[str, Any] = {
        "policies": {chosen.name: chosen},
        "world": PauseGroups(),
        "rounds": 12,
        "regret": False,
        "privacy": Privacy(epsilon=40.0),
        "training": Training(model=MLP(hidden=(8,)), evaluate_every=4),
    }
    return Experiment(**{**settings, **changes})


def run(folder: Path, experiment: Experiment) -> JournalReader:
    prepare(folder, experiment)
    execute(folder)
    return JournalReader(folder)


def debits(folder: Path) -> dict[tuple[int, int], int]:
    """(round, client) -> units, straight from the file."""
    with closing(sqlite3.connect(folder / LEDGER_NAME)) as database:
        rows = database.execute(
            "SELECT round, identity, units FROM entries JOIN accounts USING (account) "
            "WHERE kind = 'debit'"
        ).fetchall()
    return {(round_, int(name.removeprefix("client-"))): units for round_, name, units in rows}


def test_a_spec_with_privacy_round_trips(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    experiment = Experiment.load(tmp_path / "spec.toml", rehearse=True)
    assert experiment.privacy is not None
    assert experiment.privacy.schedule == Uniform(participations=3)
    assert experiment.unprotected == {"without"}
    again = tmp_path / "again.toml"
    again.write_text(experiment.to_toml())
    assert Experiment.load(again) == experiment
    cells = experiment.cells()
    assert [bool(c.unprotected) for c in cells.values()] == [False, False, True, True]
    assert not list(tmp_path.glob("*.sqlite"))  # rehearsing spent nobody's budget


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("epsilon = 40.0", "epsilon = -1.0", 8, "epsilon"),
        ("participations = 3", "participation = 3", 9, "did you mean 'participations'"),
        ('mode = "per-coordinate"', 'mode = "coordinate"', 10, "mode"),
        ("private = false", "private = 0", 18, "true or false"),
        ("epsilon = 40.0", 'ledger = "shared.sqlite"', 8, "one run at a time"),
    ],
)
def test_mistakes_are_named_with_their_line(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    assert old in SPEC
    (tmp_path / "spec.toml").write_text(SPEC.replace(old, new))
    with pytest.raises(ConfigError, match=said) as caught:
        Experiment.load(tmp_path / "spec.toml")
    assert f"line {line}:" in str(caught.value)


def test_private_needs_a_privacy_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write a \\[privacy\\] table"):
        cell(privacy=None, unprotected=frozenset({"pause"}))


def test_every_cohort_has_paid_by_the_schedule(tmp_path: Path) -> None:
    journal = run(tmp_path, cell())
    paid = debits(tmp_path)
    asked = {(t, int(k)) for t, cohort in enumerate(journal.cohorts, start=1) for k in cohort}
    assert paid.keys() == asked
    times: dict[int, int] = {}
    for t, k in sorted(asked):
        times[k] = times.get(k, 0) + 1
        expected = 40.0 * (np.exp(0.04) - 1) * np.exp(-0.04 * times[k])  # PAUSE Eq. 6
        assert paid[t, k] == pytest.approx(expected * 1e9, abs=1.0)
    most = max(sum(u for (_, k), u in paid.items() if k == client) for client in times)
    assert journal.columns["spent_max"][-1] == most / 1e9
    assert journal.columns["spent_mean"][-1] == pytest.approx(sum(paid.values()) / 30e9)
    assert np.isfinite(journal.columns["accuracy"][-1])


def test_privacy_ends_a_run_when_too_few_can_pay(tmp_path: Path) -> None:
    experiment = cell(
        Random(), rounds=1000, training=None, privacy=Privacy(schedule=Uniform(participations=2))
    )
    journal = run(tmp_path, experiment)
    assert journal.ending is not None
    assert "of 30 clients have budget left, fewer than a cohort of 5" in journal.ending
    assert 8 < len(journal) <= 12
    assert journal.columns["num_exhausted"][-1] > 25
    before = journal.digest()
    execute(tmp_path)  # nothing is left to do
    assert JournalReader(tmp_path).digest() == before


def test_noise_changes_the_model_and_no_privacy_changes_nothing(tmp_path: Path) -> None:
    """A huge budget is next to no noise; without clipping to speak of, the plain run."""
    plain = run(tmp_path / "plain", cell(privacy=None))
    mild = Privacy(epsilon=1e6, mechanism=Laplace(mode="per-coordinate", clip=10.0))
    nearly = run(tmp_path / "nearly", cell(privacy=mild))
    noisy = run(tmp_path / "noisy", cell())
    assert nearly.columns["loss"][-1] == pytest.approx(plain.columns["loss"][-1], rel=1e-2)
    assert noisy.columns["loss"][-1] > 2 * plain.columns["loss"][-1]


def test_an_unprotected_policy_keeps_no_ledger(tmp_path: Path) -> None:
    journal = run(tmp_path, cell(AllClients(), unprotected=frozenset({"all-clients"})))
    assert not (tmp_path / LEDGER_NAME).exists()
    assert np.isnan(journal.columns["spent_max"]).all()


def test_losses_are_withheld_for_nobody_has_paid_for_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        cell(PowerOfChoice(variant="pow-d")).rehearse()
    simulation = cell().simulation(tmp_path, run="run")
    trainer = simulation.trainer
    assert trainer is not None
    asked = Feedback(round=1, clients=np.arange(3), latency_seconds=np.ones(3))
    assert play_round(trainer, asked).sent.updates.signals
    sent, row = play_round(trainer, asked, release=lambda clients, updates: updates)
    assert sent.updates.signals == {}
    assert np.isnan(row.train_loss)
    simulation.close()


def test_batch_statistics_cannot_be_released(tmp_path: Path) -> None:
    experiment = cell(training=Training(model=BSFLCNN()))
    with pytest.raises(ConfigError):
        experiment.simulation(tmp_path, run="run")


def test_sketches_are_of_what_the_server_received(tmp_path: Path) -> None:
    """With much noise, updates that were nearly parallel point anywhere."""
    policy = ClusteredSampling(by="similarity")
    cosines = {}
    for label, privacy in {"plain": None, "noisy": Privacy(epsilon=1.0)}.items():
        folder = tmp_path / label
        folder.mkdir()
        simulation = cell(policy, privacy=privacy).simulation(folder, run="run")
        for _ in range(6):
            simulation.step()
        sketches = simulation.selector.state.directions
        simulation.close()
        seen = sketches[np.any(sketches != 0, axis=1)]
        units = seen / np.linalg.norm(seen, axis=1, keepdims=True)
        cosines[label] = float(np.median((units @ units.T)[np.triu_indices(len(units), 1)]))
    assert cosines["plain"] > 0.3
    assert abs(cosines["noisy"]) < 0.1


def test_budgets_follow_clients_from_run_to_run(tmp_path: Path) -> None:
    shared = Privacy(epsilon=40.0, ledger=str(tmp_path / "clients.sqlite"), schedule=Geometric())
    first = run(tmp_path / "first", cell(privacy=shared))
    second = run(tmp_path / "second", cell(privacy=shared))
    alone = run(tmp_path / "alone", cell())
    assert first.digest() == alone.digest()
    assert second.columns["spent_max"][0] > first.columns["spent_max"][0]
    assert first.run != second.run
    with Ledger.open(tmp_path / "clients.sqlite", currency="epsilon", kind="simulated") as ledger:
        accounts = ledger.register([f"client-{k}" for k in range(30)], 40 * 10**9)
        assert ledger.balances(accounts).debits.sum() == 2 * 12 * 5


def test_a_ledger_that_is_gone_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    experiment = cell(rounds=20)
    prepare(tmp_path, replace(experiment, rounds=10))
    execute(tmp_path)
    prepare(tmp_path, experiment)  # ten rounds more
    for file in tmp_path.glob(f"{LEDGER_NAME}*"):
        file.unlink()
    with pytest.raises(LedgerError):
        execute(tmp_path)
    assert not list(tmp_path.glob(f"{LEDGER_NAME}*"))


def test_a_run_on_a_spent_ledger_is_refused(tmp_path: Path) -> None:
    spent = Privacy(schedule=Uniform(participations=1), ledger=str(tmp_path / "clients.sqlite"))
    experiment = cell(Random(), training=None, privacy=spent)
    assert run(tmp_path / "first", experiment).ending is not None
    prepare(tmp_path / "second", experiment)
    with pytest.raises(BudgetError, match=r"0.*30"):
        execute(tmp_path / "second")


def test_not_even_a_broken_update_tells_anything(tmp_path: Path) -> None:
    """Whether an update is finite depends on data: such a client sends noise around nothing."""
    simulation = cell().simulation(tmp_path, run="run")
    trainer = simulation.trainer
    assert trainer is not None
    trainer.parameters[:] = np.float32(3e38)  # everything overflows from here
    asked = Feedback(round=1, clients=np.arange(3), latency_seconds=np.ones(3))
    sent: list[NDArray[np.float32]] = []

    def release(clients: IntArray, updates: NDArray[np.float32]) -> NDArray[np.float32]:
        sent.append(updates)
        return updates

    with np.errstate(all="ignore"):
        received, row = play_round(trainer, asked, release=release)
    simulation.close()
    assert received.usable.tolist() == [True] * 3
    assert (len(row.rejected), row.num_aggregated) == (0, 3)
    assert not sent[0].any()
