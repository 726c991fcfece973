"""A client's own limits: what they accept, what they refuse, and that they last."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flower.private_app import app_that, grid_of, received, send, train_a_bit

from fedmuster.core.config import to_table
from fedmuster.core.errors import BudgetError, ConfigError, FedmusterError
from fedmuster.flower import private_mod
from fedmuster.flower.client_vault import VaultContents
from fedmuster.flower.in_process import InProcessGrid
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.release_limits import Limits, Payment
from fedmuster.flower.wire import PrivacyGrant
from fedmuster.privacy.accounting import zcdp_epsilon
from fedmuster.privacy.mechanisms import Gaussian, Laplace, Mechanism

REFUSED = 6  # MOD_FAILED_PRECONDITION


def limited(mod: PrivateMod, **config: Any) -> InProcessGrid:
    return grid_of(app_that(train_a_bit, [mod]), **config)


def in_context(mechanism: Mechanism | str, max_epsilon: float) -> PrivateMod:
    return PrivateMod(mechanism=mechanism, max_epsilon=max_epsilon, file_required=False)


def refused(grid: InProcessGrid, grant: PrivacyGrant, **settings: Any) -> bool:
    reply = send(grid, grant, **settings)
    return reply.has_error() and reply.error.code == REFUSED


def total(file: Path) -> Mapping[str, int]:
    return VaultContents.of(file.read_bytes()).released


def test_a_huge_grant_gets_nothing() -> None:
    for mechanism in (Laplace(), Gaussian()):
        grid = limited(in_context(mechanism, 4.0))
        assert refused(grid, PrivacyGrant.on(mechanism, 1e6))
        assert refused(grid, PrivacyGrant.on(mechanism, 4.000000001))
        received(send(grid, PrivacyGrant.on(mechanism, 0.25)))


def test_all_releases_together_pass_the_limit_by_no_unit() -> None:
    grid = limited(in_context(Laplace(), 1.0))
    amounts = [0.5, 0.3, 0.199999999, 1e-9, 1e-9, 0.4]
    left = [
        not send(grid, PrivacyGrant.on(Laplace(), amount), run=f"run {number}").has_error()
        for number, amount in enumerate(amounts)
    ]
    assert left == [True, True, True, True, False, False]


def test_rho_is_capped_by_the_clients_own_delta() -> None:
    limits = Limits(Gaussian(clip=2.0, delta=1e-8), 3.0)
    cap = limits.cap_units / 1e9
    assert zcdp_epsilon(cap, 1e-8) <= 3.0 < zcdp_epsilon(cap + 2e-9, 1e-8)
    grid = limited(in_context(Gaussian(clip=2.0, delta=1e-8), 3.0))
    servers = Gaussian(clip=2.0, delta=1e-5)  # another δ: the same noise, another conversion
    assert refused(grid, PrivacyGrant.on(servers, cap + 1e-9))
    received(send(grid, PrivacyGrant.on(servers, cap)))
    assert refused(grid, PrivacyGrant.on(servers, 1e-9), round_=2)


@pytest.mark.parametrize(
    "granted",
    [
        Laplace(clip=2.0),
        Laplace(clip=0.5),
        Laplace(clip=1.0, mode="per-coordinate"),
        Gaussian(clip=1.0),
        "laplace:clip=1.0",
        {"name": "laplace"},
        {"name": "laplace", "clip": 1.0, "sigma": 0.0},
        {"name": "os:system"},
    ],
    ids=str,
)
def test_no_other_mechanism_is_accepted(granted: Any) -> None:
    grid = limited(in_context("laplace:clip=1.0", 4.0))
    table = to_table(granted) if isinstance(granted, Mechanism) else granted
    grant = PrivacyGrant(amount=0.1, mechanism=json.dumps(table))
    accepted = granted == {"name": "laplace"}  # clip and mode are the usual ones
    assert refused(grid, grant) is not accepted


@pytest.mark.parametrize("mechanism", [Laplace(clip=2.0), Gaussian(clip=2.0)])
def test_a_release_within_limits_is_as_noisy_as_promised(mechanism: Mechanism) -> None:
    """σ of 40,000 coordinates has a relative standard error below 0.6 %; 4 % are seven of them."""
    model = {"w": np.zeros(40_000, dtype=np.float32)}
    mod = in_context(mechanism, 1.0)
    grid = grid_of(app_that(lambda sent: {"w": sent["w"] + np.float32(1.0)}, [mod]))
    cap = Limits(mechanism, 1.0).cap_units
    sides = np.sqrt(2.0) if mechanism.name == "laplace" else 1.0
    for round_, units in enumerate((cap // 4, cap - cap // 4), start=1):
        amount = units / 1e9
        reply = send(grid, PrivacyGrant.on(mechanism, amount), model=model, round_=round_)
        spread = sides * mechanism.noise_scale(amount)
        assert received(reply)["w"].std() == pytest.approx(spread, rel=0.04)
    assert refused(grid, PrivacyGrant.on(mechanism, 1e-9), model=model, round_=3)


def test_limits_need_a_file_unless_the_app_says_otherwise(tmp_path: Path) -> None:
    mod = PrivateMod(mechanism=Laplace(), max_epsilon=1.0)
    reply = send(limited(mod), PrivacyGrant.on(Laplace(), 0.5))
    assert reply.error.code == REFUSED
    assert "release-notes" in str(reply.error.reason)
    file = tmp_path / "releases.json"
    for _ in range(2):  # a SuperNode that is started again
        grid = limited(mod, **{"release-notes": str(file)})
        received(send(grid, PrivacyGrant.on(Laplace(), 0.5), run=str(_)))
    assert total(file) == {"epsilon": 10**9}
    again = limited(mod, **{"release-notes": str(file)})
    assert refused(again, PrivacyGrant.on(Laplace(), 1e-9), run="another run, another ledger")
    assert total(file) == {"epsilon": 10**9}


def test_what_the_nodes_operator_says_counts_first(tmp_path: Path) -> None:
    config = {"release-notes": str(tmp_path / "releases.json"), "privacy-max-epsilon": 1}
    mod = in_context(Laplace(clip=3.0), 100.0)
    grid = limited(mod, **config)
    assert refused(grid, PrivacyGrant.on(Laplace(clip=3.0), 1.5))
    other = limited(mod, **config, **{"privacy-mechanism": "gaussian:clip=0.5"})
    assert refused(other, PrivacyGrant.on(Laplace(clip=3.0), 0.5))
    received(send(other, PrivacyGrant.on(Gaussian(clip=0.5), 0.01)))
    without = limited(PrivateMod(), **config, **{"privacy-mechanism": "gaussian:clip=0.5"})
    assert refused(without, PrivacyGrant.on(Gaussian(clip=0.5), 1e6), round_=2)
    received(send(without, PrivacyGrant.on(Gaussian(clip=0.5), 0.01), round_=2))


@pytest.mark.parametrize(
    "config",
    [
        {"privacy-max-epsilon": 4.0},
        {"privacy-mechanism": "laplace"},
        {"privacy-mechanism": "laplace", "privacy-max-epsilon": "4"},
        {"privacy-mechanism": "laplace", "privacy-max-epsilon": True},
        {"privacy-mechanism": "laplace", "privacy-max-epsilon": float("nan")},
        {"privacy-mechanism": "laplace", "privacy-max-epsilon": float("inf")},
        {"privacy-mechanism": "laplace", "privacy-max-epsilon": -4.0},
        {"privacy-mechanism": "laplce", "privacy-max-epsilon": 4.0},
        {"privacy-mechanism": 3, "privacy-max-epsilon": 4.0},
        {"privacy-mechanism": "laplace:clip=nan", "privacy-max-epsilon": 4.0},
    ],
    ids=str,
)
def test_limits_that_are_none_release_nothing(config: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "releases.json"
    grid = limited(PrivateMod(), **config, **{"release-notes": str(file)})
    assert refused(grid, PrivacyGrant.on(Laplace(), 1e-3))
    assert not file.exists()


@pytest.mark.parametrize("max_epsilon", [0, -1.0, np.nan, np.inf, 1e-10, 1e7, True, "4", [4.0]])
def test_a_max_epsilon_is_a_number_that_the_ledger_counts(max_epsilon: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        PrivateMod(mechanism=Laplace(), max_epsilon=max_epsilon)
    assert caught.value.key == ("max_epsilon",)


@pytest.mark.parametrize("mechanism", [Laplace, 4.0, "laplace:clip=-1", "nonsense"], ids=str)
def test_a_mechanism_is_an_object_or_text(mechanism: Any) -> None:
    with pytest.raises(ConfigError):
        PrivateMod(mechanism=mechanism, max_epsilon=4.0)


def test_releases_before_there_were_limits_count(tmp_path: Path) -> None:
    config = {"release-notes": str(tmp_path / "releases.json")}
    received(send(limited(PrivateMod(), **config), PrivacyGrant.on(Laplace(), 0.75)))
    grid = limited(PrivateMod(mechanism=Laplace(), max_epsilon=1.0), **config)
    assert refused(grid, PrivacyGrant.on(Laplace(), 0.5), round_=2)
    received(send(grid, PrivacyGrant.on(Laplace(), 0.25), round_=2))


def test_totals_of_two_currencies_are_not_mixed(tmp_path: Path) -> None:
    config = {"release-notes": str(tmp_path / "releases.json")}
    laplace = PrivateMod(mechanism=Laplace(), max_epsilon=1.0)
    received(send(limited(laplace, **config), PrivacyGrant.on(Laplace(), 0.5)))
    gaussian = PrivateMod(mechanism=Gaussian(), max_epsilon=1.0)
    assert refused(limited(gaussian, **config), PrivacyGrant.on(Gaussian(), 1e-3), round_=2)
    received(send(limited(laplace, **config), PrivacyGrant.on(Laplace(), 0.5), round_=2))


def test_a_fraction_of_a_unit_is_neither_counted_nor_released() -> None:
    """1.9 units buy the noise of one unit, which is what is counted."""
    spent: list[float] = []

    class Noted(Laplace):
        def release(self, update: Any, amount: float, random_bytes: Any) -> Any:
            spent.append(amount)
            return super().release(update, amount, random_bytes)

    grid = limited(in_context(Noted(), 2e-9))
    for round_ in (1, 2):
        received(send(grid, PrivacyGrant.on(Laplace(), 1.9e-9), round_=round_))
    assert refused(grid, PrivacyGrant.on(Laplace(), 1.9e-9), round_=3)
    assert refused(grid, PrivacyGrant.on(Laplace(), 0.9e-9), round_=3)
    assert spent == [1e-9, 1e-9]


def test_payments_of_a_round_that_is_over_are_refused() -> None:
    payment = Payment(run="r", round=3, currency="epsilon", units=5, cap_units=12)
    once = payment.on(VaultContents())
    assert once == VaultContents(rounds={"r": 3}, released={"epsilon": 5})
    with pytest.raises(FedmusterError):
        payment.on(once)
    with pytest.raises(BudgetError):
        payment.on(VaultContents(released={"epsilon": 8}))


@pytest.fixture
def warned(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], int]]:
    """How often the mod has warned, in a process that had no warning before."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    private_mod._warn_of_no_limits.cache_clear()
    with caplog.at_level(logging.WARNING, "flwr"):
        yield lambda: len(caplog.records)
    private_mod._warn_of_no_limits.cache_clear()


def test_a_mod_without_limits_warns_once(warned: Callable[[], int]) -> None:
    grid = limited(PrivateMod())
    for round_ in (1, 2, 3):
        received(send(grid, PrivacyGrant.on(Laplace(), 0.5), round_=round_))
        assert warned() == 1
    private_mod._warn_of_no_limits.cache_clear()  # the next message starts a process
    received(send(grid, PrivacyGrant.on(Laplace(), 0.5), round_=4))
    assert warned() == 1


def test_a_mod_with_limits_does_not_warn(warned: Callable[[], int]) -> None:
    received(send(limited(in_context(Laplace(), 1.0)), PrivacyGrant.on(Laplace(), 0.5)))
    assert warned() == 0
