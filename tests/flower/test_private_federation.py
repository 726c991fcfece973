"""A private federation: nobody is asked who has not paid, and nobody pays twice."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from tests.flower.tiny_app import Train, model, nodes, trained

from fedmuster import PAUSE, PowerOfChoice, Random
from fedmuster.core.errors import ConfigError, LedgerError, StateError
from fedmuster.experiments.journal import JournalReader
from fedmuster.flower import Muster, PrivateMod, ReportingMod
from fedmuster.flower.in_process import InProcessGrid
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.ledger import audit
from fedmuster.privacy.ledger.reading import summarise
from fedmuster.privacy.mechanisms import Laplace
from fedmuster.privacy.schedules import Uniform


class Killed(BaseException):
    """The ServerApp dies here."""


def private_grid(
    names: str = "abcdef", train: Train = trained, *, max_epsilon: float = 4.0
) -> InProcessGrid:
    limited = PrivateMod(mechanism=Laplace(clip=1.0), max_epsilon=max_epsilon, file_required=False)
    app = ClientApp(mods=[limited, ReportingMod()])
    app.train()(train)
    return InProcessGrid(app, nodes(names))


def promise(folder: Path, times: int = 4) -> Privacy:
    return Privacy(
        epsilon=4.0,
        schedule=Uniform(participations=times),
        mechanism=Laplace(clip=1.0),
        noise="secure",
        ledger=str(folder / "ledger.sqlite"),
    )


def run(folder: Path, grid: InProcessGrid, rounds: int, **settings: Any) -> Any:
    wanted: dict[str, Any] = {"policy": PAUSE(), "cohort_size": 2, "wait_seconds": 1.0}
    wanted |= {"poll_seconds": 0.001, "privacy": promise(folder)} | settings
    muster = Muster(FedAvg(fraction_evaluate=0.0), folder=folder / "run", **wanted)
    return muster.start(grid=grid, initial_arrays=model(), num_rounds=rounds, timeout=10.0)


def spent(folder: Path) -> dict[str, int]:
    return {each.identity: each.debits for each in summarise(folder / "ledger.sqlite").top}


def test_everybody_who_is_asked_has_paid_and_the_auditor_agrees(tmp_path: Path) -> None:
    run(tmp_path, private_grid(), rounds=4)
    journal = JournalReader(tmp_path / "run")
    asked = np.bincount(np.concatenate(journal.cohorts), minlength=6)
    names = journal.clients["identity"].tolist()
    assert spent(tmp_path) == dict(zip(names, asked.tolist(), strict=True))
    found = audit(tmp_path / "ledger.sqlite", [tmp_path / "run"])
    assert found.verification.faults == []
    assert found.faults == []
    assert journal.columns["spent_max"][-1] > 0


def test_noise_is_secure_where_nothing_is_said(tmp_path: Path) -> None:
    settled = Muster(
        FedAvg(fraction_evaluate=0.0),
        folder=tmp_path,
        policy=PAUSE(),
        cohort_size=2,
        privacy=Privacy(),
    )
    assert settled.settings.privacy == Privacy(noise="secure")
    with pytest.raises(ConfigError):
        Muster(
            FedAvg(),
            folder=tmp_path,
            policy=PAUSE(),
            cohort_size=2,
            privacy=Privacy(noise="seeded"),
        )


def test_the_run_ends_when_budgets_do(tmp_path: Path) -> None:
    result = run(tmp_path, private_grid("abc"), rounds=50, privacy=promise(tmp_path, times=2))
    journal = JournalReader(tmp_path / "run")
    assert journal.ending is not None
    assert "privacy ends the run" in journal.ending
    assert len(journal) == 3  # three clients, twice each, two at a time
    assert set(result.train_metrics_clientapp) <= {1, 2, 3}
    again = run(tmp_path, private_grid("abc"), rounds=50, privacy=promise(tmp_path, times=2))
    assert again.arrays["w"].numpy().tolist() == result.arrays["w"].numpy().tolist()


def test_clients_that_allow_less_than_the_server_count_as_failed(tmp_path: Path) -> None:
    """The server would ask everybody four times, and every client releases twice."""
    grid = private_grid("abc", max_epsilon=2.0)
    result = run(tmp_path, grid, rounds=50, cohort_size=3)
    journal = JournalReader(tmp_path / "run")
    assert journal.ending is not None
    assert journal.columns["num_completed"].tolist() == [3, 3, 0, 0]
    assert spent(tmp_path) == {"a": 4, "b": 4, "c": 4}  # the server cannot know
    assert np.isfinite(result.arrays["w"].numpy()).all()


def test_a_client_with_another_mechanism_fails_alone(tmp_path: Path) -> None:
    grid = private_grid("abc")
    grid.nodes[0].config |= {"privacy-mechanism": "gaussian"}
    result = run(tmp_path, grid, rounds=2, cohort_size=3)
    assert JournalReader(tmp_path / "run").columns["num_completed"].tolist() == [2, 2]
    assert np.isfinite(result.arrays["w"].numpy()).all()


@pytest.mark.parametrize("moment", ["while clients train", "before the round counts"])
def test_a_server_that_dies_in_a_round_lets_nobody_pay_or_send_twice_for_it(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, int]] = []
    dying = [False]

    def note(message: Message, context: Context) -> Message:
        if dying[0] and moment == "while clients train":
            raise Killed
        sent.append((str(context.node_config["client-id"]), len(sent)))
        return trained(message, context)

    run(tmp_path, private_grid(train=note), rounds=1)
    before = spent(tmp_path)
    dying[0] = True
    if moment == "before the round counts":
        monkeypatch.setattr("fedmuster.flower.run_record.Record.commit", _die)
    with pytest.raises(Killed):
        run(tmp_path, private_grid(train=note), rounds=2)
    monkeypatch.undo()
    paid = {n for n, count in spent(tmp_path).items() if count > before.get(n, 0)}
    assert len(paid) == 2
    dying[0] = False
    run(tmp_path, private_grid(train=note), rounds=2)
    journal = JournalReader(tmp_path / "run")
    names = journal.clients["identity"]
    assert len(journal) == 2
    assert not paid & set(names[journal.cohorts[1]].tolist())
    assert set(names[journal.scores["paid_before"][1] == 1].tolist()) == paid  # as `explain` says
    after = spent(tmp_path)
    assert all(after[name] == before.get(name, 0) + 1 for name in paid)
    found = audit(tmp_path / "ledger.sqlite", [tmp_path / "run"])
    assert found.faults == []


def test_a_round_for_which_everybody_has_paid_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, private_grid("ab"), rounds=1)
    monkeypatch.setattr("fedmuster.flower.run_record.Record.commit", _die)
    with pytest.raises(Killed):
        run(tmp_path, private_grid("ab"), rounds=2)
    monkeypatch.undo()
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.INFO, "flwr"):
        run(tmp_path, private_grid("ab"), rounds=3)
    cohorts = [cohort.tolist() for cohort in JournalReader(tmp_path / "run").cohorts]
    assert cohorts == [[0, 1], [], [0, 1]]
    assert "waiting for nodes" not in caplog.text
    assert caplog.text.count("clients paid for it before the ServerApp died") == 1
    assert "round 2: 2 of 2 clients paid for it" in caplog.text
    assert spent(tmp_path) == {"a": 3, "b": 3}


def _die(*args: object, **kwargs: object) -> None:
    raise Killed


def test_a_run_whose_ledger_is_gone_does_not_begin_with_a_new_one(tmp_path: Path) -> None:
    run(tmp_path, private_grid(), rounds=1)
    (tmp_path / "ledger.sqlite").unlink()
    with pytest.raises((StateError, LedgerError), match="restore"):
        run(tmp_path, private_grid(), rounds=2)


def test_updates_without_the_mod_are_not_used(tmp_path: Path) -> None:
    app = ClientApp(mods=[])
    app.train()(trained)
    result = run(tmp_path, InProcessGrid(app, nodes("abc")), rounds=1)
    assert result.arrays["w"].numpy().tolist() == [0.0, 0.0, 0.0]
    assert JournalReader(tmp_path / "run").columns["num_completed"].tolist() == [0]


def test_what_nobody_has_paid_for_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="power-of-choice"):
        run(tmp_path, private_grid(), rounds=1, policy=PowerOfChoice(variant="pow-d"))


def test_clients_that_join_have_an_account_of_their_own(tmp_path: Path) -> None:
    grid = private_grid("ab")
    joined = nodes("abz")[2]

    class Joining(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            if server_round == 1:
                grid.add(joined)
            return super().aggregate_train(server_round, replies)

    muster = Muster(
        Joining(fraction_evaluate=0.0),
        policy=Random(),
        cohort_size=3,
        folder=tmp_path / "run",
        wait_seconds=0.2,
        poll_seconds=0.001,
        privacy=promise(tmp_path),
    )
    muster.start(grid=grid, initial_arrays=model(), num_rounds=2, timeout=10.0)
    assert spent(tmp_path) == {"a": 2, "b": 2, "z": 1}


def test_noise_reaches_the_model(tmp_path: Path) -> None:
    first: ArrayRecord = run(tmp_path / "one", private_grid(), rounds=1).arrays
    second: ArrayRecord = run(tmp_path / "two", private_grid(), rounds=1).arrays
    assert not np.array_equal(first["w"].numpy(), second["w"].numpy())
