"""Data sets that users bring."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.learning.records import DataSet


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnData:
    """Your own data set, made by a function of yours that takes the seed.

    Args:
        factory: ``module:function``, for example ``my_package.my_module:load``; the module is
            looked for where Python looks, and then in the working directory.

    Example:
        >>> OwnData(factory="fedmuster.learning.sources.digits:Digits").factory
        'fedmuster.learning.sources.digits:Digits'
    """

    name: ClassVar[str] = "own"

    factory: str

    def __post_init__(self) -> None:
        check_types(self)
        module, _, function = self.factory.partition(":")
        names = [*module.split("."), *function.split(".")]
        require(
            all(name.isidentifier() for name in names),
            self,
            "factory",
            "module:function, for example 'my_package.my_module:load'",
        )

    def load(self, seed: int) -> DataSet:
        """Import the function and call it."""
        data = self._imported()(seed)
        if not isinstance(data, DataSet):
            raise self._error(f"returned {type(data).__name__}, expected a DataSet")
        return data

    def _imported(self) -> Any:
        module, _, function = self.factory.partition(":")
        try:
            with _working_directory_importable():
                found: Any = importlib.import_module(module)
        except ImportError as error:
            raise self._error(
                f"cannot be imported ({error}); install it, or put its folder on PYTHONPATH"
            ) from error
        for name in function.split("."):
            if not hasattr(found, name):
                raise self._error(f"is not there: {module} has no {function}")
            found = getattr(found, name)
        if not callable(found):
            raise self._error(f"is {type(found).__name__}, expected a function of the seed")
        return found

    def _error(self, complaint: str) -> ConfigError:
        return ConfigError(f"OwnData: factory {self.factory} {complaint}", key=("factory",))


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
