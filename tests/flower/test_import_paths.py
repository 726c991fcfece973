"""What users import, and from where."""

import importlib
import sys

import pytest

from fedmuster import flower


@pytest.mark.parametrize("name", ["EdgeGroups", "Muster", "PrivateMod", "ReportingMod"])
def test_the_old_path_works_and_warns(name: str) -> None:
    sys.modules.pop("fedmuster.adapters.flower", None)
    with pytest.warns(DeprecationWarning, match="fedmuster.flower"):
        old = importlib.import_module("fedmuster.adapters.flower")
    assert getattr(old, name) is getattr(flower, name)
    assert not hasattr(old, "nonsense")
