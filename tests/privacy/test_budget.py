"""Debit before anybody is asked; continue after a crash without paying twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmuster import Random
from fedmuster.core.errors import ConfigError, LedgerError, StateError
from fedmuster.experiments.spec import Experiment
from fedmuster.privacy.budget import Budget, Privacy
from fedmuster.privacy.ledger import Ledger
from fedmuster.privacy.ledger.chain import reading
from fedmuster.privacy.mechanisms import Gaussian, Laplace
from fedmuster.privacy.schedules import Geometric, Uniform
from fedmuster.worlds import PauseGroups

NAMES = ["ann", "bob", "cem", "dot"]
PRIVACY = Privacy(epsilon=8.0, schedule=Uniform(participations=4), noise="seeded")


def open_budget(path: Path, privacy: Privacy = PRIVACY, run: str = "run") -> Budget:
    return Budget(privacy, path, run=run, identities=NAMES, seed=5)


def clients(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


def test_debits_follow_the_schedule_and_end(tmp_path: Path) -> None:
    budget = open_budget(tmp_path / "ledger.sqlite")
    assert budget.left.tolist() == [1.0] * 4
    for round_ in (1, 2, 3, 4):
        grant = budget.debit(round_, clients(0, 2))
        assert grant.amounts.tolist() == [2.0, 2.0]
        assert grant.releasable.all()
        assert budget.left.tolist() == [1 - round_ / 4, 1.0, 1 - round_ / 4, 1.0]
    assert budget.able.tolist() == [False, True, False, True]
    standing = budget.standing()
    assert (standing.spent_max, standing.spent_mean, standing.num_exhausted) == (8.0, 4.0, 2)
    budget.close()


def test_the_index_of_the_schedule_counts_over_all_runs(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    halves = Privacy(epsilon=8.0, schedule=Geometric(eta=float(np.log(2))), noise="seeded")
    first = open_budget(path, halves, "first")
    assert first.debit(1, clients(1)).amounts[0] == pytest.approx(4.0)
    first.close()
    second = open_budget(path, halves, "second")
    assert second.left[1] == pytest.approx(0.5)
    assert second.debit(1, clients(0, 1)).amounts == pytest.approx([4.0, 2.0])
    second.close()


def test_a_round_that_is_played_again_is_not_paid_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    budget = open_budget(path)
    budget.debit(1, clients(0, 1))
    image = budget.to_bytes()
    lost = [budget.debit(2, clients(1, 3)), budget.debit(3, clients(1))]
    budget.close()
    again = open_budget(path)
    again.load(image, after_round=1)
    assert again.left.tolist() == [0.75, 0.75, 1.0, 1.0]
    for round_, before in enumerate(lost, start=2):
        grant = again.debit(round_, before.clients)
        assert grant.amounts.tolist() == before.amounts.tolist()
        assert grant.releasable.all()
    assert again.left.tolist() == [0.75, 0.25, 1.0, 0.75]
    again.close()
    with Ledger.open(path, currency="epsilon", kind="simulated") as ledger:
        accounts = ledger.register(NAMES, 8 * 10**9)
        assert ledger.balances(accounts).debits.tolist() == [1, 3, 0, 1]


def test_what_was_asked_before_a_crash_is_not_released_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    path = tmp_path / "ledger.sqlite"
    secure = Privacy(epsilon=8.0, schedule=Uniform(participations=4), noise="secure")
    budget = open_budget(path, secure)
    image = budget.to_bytes()
    budget.debit(1, clients(0, 1))
    budget.close()
    again = open_budget(path, secure)
    again.load(image, after_round=0)
    grant = again.debit(1, clients(1, 2))
    assert grant.releasable.tolist() == [False, True]
    update = np.zeros((1, 3), dtype=np.float32)
    with pytest.raises(StateError):
        again.release(grant, clients(1), update)
    assert again.release(grant, clients(2), update).shape == (1, 3)
    again.close()


def test_simulated_noise_repeats_and_secure_noise_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    update = np.linspace(-1, 1, 40, dtype=np.float32).reshape(2, 20)
    for noise in ("seeded", "secure"):
        released = []
        for number in (1, 2):
            budget = open_budget(tmp_path / f"{noise}-{number}.sqlite", Privacy(noise=noise))
            grant = budget.debit(1, clients(0, 3))
            released.append(budget.release(grant, clients(0, 3), update))
            budget.close()
        assert np.array_equal(released[0], released[1]) == (noise == "seeded")
        assert not np.array_equal(released[0][0], released[0][1])


def test_a_run_whose_ledger_was_restored_from_a_backup_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    budget = open_budget(path)
    budget.close()
    backup = {file: file.read_bytes() for file in tmp_path.iterdir()}
    budget = open_budget(path)
    budget.debit(1, clients(0))
    image = budget.to_bytes()
    budget.close()
    for file in tmp_path.iterdir():
        file.unlink()
    for file, content in backup.items():
        file.write_bytes(content)
    restored = open_budget(path)  # the whole folder: nothing here knows better, but the checkpoint
    with pytest.raises(LedgerError, match="backup"):
        restored.load(image, after_round=1)
    restored.close()


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    first = open_budget(path, run="first")
    with pytest.raises(LedgerError, match="first"):
        open_budget(path, run="second")
    first.close()
    open_budget(path, run="second").close()


@pytest.mark.parametrize(
    "other",
    [
        Privacy(epsilon=9.0, schedule=Uniform(participations=4)),
        Privacy(epsilon=8.0, mechanism=Gaussian()),
        Privacy(epsilon=8.0, mechanism=Laplace(mode="per-coordinate")),
    ],
    ids=["another cap", "another currency", "another mode"],
)
def test_another_promise_needs_another_ledger(tmp_path: Path, other: Privacy) -> None:
    path = tmp_path / "ledger.sqlite"
    open_budget(path).close()
    with pytest.raises(LedgerError):
        open_budget(path, other)
    open_budget(path).close()  # and the refused one left nothing behind


def test_nothing_is_released_without_its_debit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    secure = Privacy(epsilon=8.0, schedule=Uniform(participations=4), noise="secure")
    budget = open_budget(tmp_path / "ledger.sqlite", secure)
    update = np.zeros((1, 3), dtype=np.float32)
    grant = budget.debit(1, clients(0, 2))
    budget.release(grant, clients(0), update)
    for client in (1, 3, 0):  # two that were not asked, and one that has sent
        with pytest.raises(StateError):
            budget.release(grant, clients(client), update)
    newer = budget.debit(2, clients(1))
    budget.release(newer, clients(1), update)
    budget.release(grant, clients(2), update)  # an older grant is open until its clients have sent
    for spent, client in ((grant, 2), (newer, 1), (newer, 2)):
        with pytest.raises(StateError):
            budget.release(spent, clients(client), update)
    budget.close()


def test_asking_to_pay_twice_in_one_round_counts_once(tmp_path: Path) -> None:
    """As after a message that was lost: what is on record is found, and no more is spent."""
    budget = open_budget(tmp_path / "ledger.sqlite")
    image = budget.to_bytes()
    for _ in range(2):
        budget.debit(1, clients(0, 1))
        assert budget.left.tolist() == [0.75, 0.75, 1.0, 1.0]
    budget.load(image, after_round=0)  # and when rounds are played again
    assert budget.left.tolist() == [1.0] * 4
    for _ in range(2):
        assert budget.debit(1, clients(0, 1)).releasable.all()
        assert budget.left.tolist() == [0.75, 0.75, 1.0, 1.0]
    budget.close()


def test_secure_runs_are_not_wound_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that lost several rounds knows at once what its clients have really left."""
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    secure = Privacy(epsilon=8.0, schedule=Uniform(participations=4), noise="secure")
    budget = open_budget(tmp_path / "ledger.sqlite", secure)
    image = budget.to_bytes()
    for round_ in (1, 2, 3, 4):
        budget.debit(round_, clients(0))
    budget.load(image, after_round=0)
    assert budget.able.tolist() == [False, True, True, True]
    budget.close()


@pytest.mark.parametrize("epsilon", [1e-10, 0.0, -1.0, float("nan"), float("inf")])
def test_bad_budgets_are_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        Privacy(epsilon=epsilon)


def test_noise_is_secure_unless_an_experiment_is_simulated(tmp_path: Path) -> None:
    world = PauseGroups(cohort_size=2)
    simulated = Experiment(policies={"r": Random()}, world=world, rounds=1, privacy=Privacy())
    assert simulated.privacy == Privacy(noise="seeded")
    assert 'noise = "seeded"' in simulated.to_toml()
    kept = replace(simulated, privacy=Privacy(noise="secure"))
    assert kept.privacy == Privacy(noise="secure")
    real = open_budget(tmp_path / "ledger.sqlite", Privacy())
    real.close()
    with reading(tmp_path / "ledger.sqlite") as chain:
        assert chain.info.kind == "real"
