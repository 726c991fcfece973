"""Where ``fedmuster claims`` finds the claims: in a checkout, not in the wheel."""

import sys
from pathlib import Path

import pytest

import fedmuster
from fedmuster.cli.claims import load_claims
from fedmuster.core.errors import ConfigError

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder beside which there are no claims, and fedmuster as if installed there."""
    site = tmp_path / "lib" / "site-packages" / "fedmuster"
    monkeypatch.setattr(fedmuster, "__file__", str(site / "__init__.py"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_beside_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    assert "bsfl-alpha" in load_claims()
    assert sys.path[0] == str(CHECKOUT)


def test_in_the_current_folder(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert "bsfl-alpha" in load_claims()


@pytest.mark.usefixtures("installed")
def test_without_a_checkout() -> None:
    with pytest.raises(ConfigError):
        load_claims()


def test_another_package_of_this_name_is_not_taken(installed: Path) -> None:
    (installed / "claims").mkdir()
    (installed / "claims" / "__init__.py").touch()
    with pytest.raises(ConfigError):
        load_claims()
