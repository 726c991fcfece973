"""Import paths of version 0.1 lead to the new ones, with a warning."""

import importlib
import sys

import pytest

import fedmuster
from fedmuster.moved import _MOVED

NAMES = {
    "learning.data": "Digits",
    "learning.partition": "DirichletLabels",
    "learning.training": "Training",
    "objectives.reward": "CohortReward",
    "privacy.mechanism": "Gaussian",
    "privacy.schedule": "Uniform",
    "simulation": "Simulation",
}


@pytest.mark.parametrize(("old", "name"), NAMES.items())
def test_an_old_path_warns_and_finds_the_same_object(old: str, name: str) -> None:
    for path in [path for path in sys.modules if path.removeprefix("fedmuster.") in _MOVED]:
        del sys.modules[path]
    with pytest.warns(DeprecationWarning, match=_MOVED[old]):
        module = importlib.import_module(f"fedmuster.{old}")
    assert getattr(module, name) is getattr(
        importlib.import_module(f"fedmuster.{_MOVED[old]}"), name
    )


def test_every_new_path_is_there() -> None:
    for new in filter(None, _MOVED.values()):
        if new != "flower":  # needs an extra
            assert importlib.import_module(f"fedmuster.{new}")


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fedmuster.nowhere")
    assert not hasattr(fedmuster, "nowhere")
