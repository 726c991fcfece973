"""Functions that a config names: ``my_package.my_module:function``."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmuster.core.config import require
from fedmuster.core.errors import ConfigError


def check_factory(owner: Any) -> None:
    """Used by ``__post_init__``: complain unless ``owner.factory`` can be such a name."""
    module, _, function = owner.factory.partition(":")
    names = (*module.split("."), *function.split("."))
    expected = "module:function, for example 'my_package.my_module:make'"
    require(all(map(str.isidentifier, names)), owner, "factory", expected)


def imported(owner: Any) -> Callable[..., Any]:
    """The function that ``owner.factory`` names, also where it lies in the working directory."""
    module, _, function = owner.factory.partition(":")
    try:
        with _working_directory_importable():
            found: Any = importlib.import_module(module)
    except ImportError as error:
        raise factory_error(
            owner, f"cannot be imported ({error}); install it, or put its folder on PYTHONPATH"
        ) from error
    for name in function.split("."):
        if not hasattr(found, name):
            raise factory_error(owner, f"is not there: {module} has no {function}")
        found = getattr(found, name)
    if not callable(found):
        raise factory_error(owner, f"is {type(found).__name__}, expected a function")
    function_found: Callable[..., Any] = found
    return function_found


def factory_error(owner: Any, complaint: str) -> ConfigError:
    """What is wrong with ``owner.factory``."""
    return ConfigError(
        f"{type(owner).__name__}: factory {owner.factory} {complaint}", key=("factory",)
    )


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    # An installed command, unlike python -m, does not look where the user stands.
    here = str(Path.cwd())
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)
