"""The former import path of :mod:`fedmuster.flower`, which goes with the next release."""

from typing import Any
from warnings import warn

from fedmuster import flower


def __getattr__(name: str) -> Any:
    if name not in flower.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    text = f"from fedmuster.adapters.flower import {name}: write fedmuster.flower instead"
    warn(text, DeprecationWarning, stacklevel=2)
    return getattr(flower, name)
