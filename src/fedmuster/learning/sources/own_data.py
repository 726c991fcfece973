"""Data sets that users bring."""

from dataclasses import dataclass
from typing import ClassVar

from fedmuster.core.config import check_types
from fedmuster.learning.factory import check_factory, factory_error, imported
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
        check_factory(self)

    def load(self, seed: int) -> DataSet:
        """Import the function and call it."""
        data = imported(self)(seed)
        if not isinstance(data, DataSet):
            raise factory_error(self, f"returned {type(data).__name__}, expected a DataSet")
        return data
