"""Per-client accounts of Gaussian releases, against dp-accounting, from real ledgers."""

import json
import math
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from click.testing import CliRunner
from dp_accounting.rdp import RdpAccountant

from fedmuster.cli.ledger import ledger
from fedmuster.privacy.budget import Budget, Privacy
from fedmuster.privacy.ledger.reading import history, summarise
from fedmuster.privacy.mechanisms import Gaussian
from fedmuster.privacy.schedules import Geometric, to_amount

NAMES = [f"client-{number}" for number in range(8)]
ORDERS = (1 + np.logspace(-1, 4, 10_000)).tolist()
DELTA = 1e-6


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 rounds of a guided choice: client k is asked in every (k + 1)-th round."""
    path = tmp_path_factory.mktemp("gaussian") / "ledger.sqlite"
    promise = Privacy(
        epsilon=20.0,
        mechanism=Gaussian(clip=1.0, delta=DELTA),
        schedule=Geometric(eta=0.05),
        noise="seeded",
    )
    budget = Budget(promise, path, run="run", identities=NAMES, seed=3)
    for number in range(1, 41):
        budget.debit(number, np.array([k for k in range(8) if number % (k + 1) == 0]))
    budget.close()
    return path


def reference(amounts: list[float], delta: float) -> float:
    """dp-accounting's, of Gaussian releases with their own noise multipliers."""
    accountant = RdpAccountant(orders=ORDERS)
    for rho in amounts:
        accountant.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
    return float(accountant.get_epsilon(delta))


def amounts_of(path: Path, name: str) -> list[float]:
    _, _, payments = history(path, name)
    return [to_amount(payment.units) for payment in payments]


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_every_client_has_the_epsilon_of_dp_accounting(path: Path, delta: float) -> None:
    shown = CliRunner().invoke(ledger, ["show", str(path), "--delta", str(delta), "--json"])
    accounts = {row["identity"]: row for row in json.loads(shown.output)["top"]}
    assert accounts.keys() == set(NAMES)
    assert len({len(amounts_of(path, name)) for name in NAMES}) > 5
    for name in NAMES:
        expected = reference(amounts_of(path, name), delta)
        assert accounts[name]["epsilon"] == pytest.approx(expected, rel=1e-6)


def test_no_amplification_is_claimed(path: Path) -> None:
    """A client that is asked in every eighth round pays for its releases as if it were alone."""
    (amount, *others) = amounts_of(path, "client-7")
    sampled = RdpAccountant()  # its usual orders, which are few
    event = dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * amount))
    sampled.compose(dp_accounting.PoissonSampledDpEvent(1 / 8, event), 40)
    amounts = [amount] * (1 + len(others))
    alone = reference(amounts, DELTA)
    shown = CliRunner().invoke(
        ledger, ["show", str(path), "--client", "client-7", "--delta", "1e-6", "--json"]
    )
    spent = json.loads(shown.output)["epsilon"]
    assert spent == pytest.approx(reference([amount, *others], DELTA), rel=1e-6)
    assert alone > 2 * sampled.get_epsilon(DELTA)  # what a random and secret choice would give


def test_no_client_passes_the_promise(path: Path) -> None:
    for account in summarise(path, top=len(NAMES)).top:
        assert reference(amounts_of(path, account.identity), DELTA) <= 20.0
