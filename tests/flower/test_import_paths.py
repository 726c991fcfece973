"""What users import, and from where."""

import importlib
import operator

import pytest

from fedmuster import flower


@pytest.mark.parametrize("name", ["EdgeGroups", "Muster", "PrivateMod", "ReportingMod"])
def test_the_old_path_works_and_warns(name: str) -> None:
    old = importlib.import_module("fedmuster.adapters.flower")
    with pytest.warns(DeprecationWarning, match="fedmuster.flower"):
        assert getattr(old, name) is getattr(flower, name)


@pytest.mark.parametrize("module", ["fedmuster.adapters.flower", "fedmuster.flower"])
def test_other_names_are_not_there(module: str) -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        operator.attrgetter("nonsense")(importlib.import_module(module))
