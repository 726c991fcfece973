"""The partitioners of Flower's library flwr-datasets, in memory."""

import importlib
import inspect
import tomllib
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.training.dealing import check_enough
from fedmuster.training.training_records import DataSet, Shares


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowerDatasets:
    """Any partitioner of the library flwr-datasets that divides samples, by its class name.

    The number of partitions, the seed and the column to partition by (the labels) are filled in
    where the partitioner asks for them. The library sees the labels (column ``label``), the
    owners where the data has them (``owner``) and the number of each sample (``row``). Some
    partitioners leave out what does not divide.

    Args:
        partitioner: a class of ``flwr_datasets.partitioner``.
        settings: its other arguments, each written ``key = value`` as in TOML.
    """

    name: ClassVar[str] = "flwr-datasets"

    partitioner: str = "DirichletPartitioner"
    settings: tuple[str, ...] = ("alpha = 0.5",)

    def __post_init__(self) -> None:
        check_types(self)
        require(self.partitioner.isidentifier(), self, "partitioner", "the name of a class")
        self._arguments()

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Let the library deal the samples."""
        check_enough(self, data, num_clients)
        try:
            partitioners = importlib.import_module("flwr_datasets.partitioner")
            datasets = importlib.import_module("datasets")
        except ImportError as error:
            raise MissingExtraError(
                "flwr-datasets", extra="flwr-datasets", purpose="the partition flwr-datasets"
            ) from error
        kind = getattr(partitioners, self.partitioner, None)
        if kind is None or inspect.isabstract(kind) or self.partitioner not in partitioners.__all__:
            raise ConfigError(
                f"FlowerDatasets: flwr-datasets has no partitioner {self.partitioner!r}; expected "
                f"one of: {', '.join(partitioners.__all__)}",
                key=("partitioner",),
            )
        filled = {
            "num_partitions": num_clients,
            "partition_by": "label",
            "seed": int(rng.integers(2**31)),
        }
        accepted = inspect.signature(kind).parameters
        arguments = {k: v for k, v in filled.items() if k in accepted} | self._arguments()
        columns = {"row": np.arange(len(data.train_targets)), "label": data.train_targets}
        if data.train_owners is not None:
            columns["owner"] = data.train_owners
        try:
            with warnings.catch_warnings():
                # The library calls its own dependencies in ways that they are giving up.
                warnings.simplefilter("ignore", FutureWarning)
                partitioner = kind(**arguments)
                partitioner.dataset = datasets.Dataset.from_dict(columns)
                found = partitioner.num_partitions
                parts = [partitioner.load_partition(k) for k in range(min(found, num_clients))]
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigError(
                f"FlowerDatasets: {self.partitioner} refuses {arguments}: {error}",
                key=("settings",),
            ) from error
        if found != num_clients:
            raise ConfigError(
                f"FlowerDatasets: {self.partitioner} makes {found} partitions of this data; write "
                f"num_clients = {found}"
            )
        return self._shares(parts)

    def _shares(self, parts: list[Any]) -> Shares:
        if any("row" not in part.column_names for part in parts):
            raise ConfigError(
                f"FlowerDatasets: {self.partitioner} divides features, not samples",
                key=("partitioner",),
            )
        rows = [part.with_format("arrow")[:]["row"].to_numpy() for part in parts]
        sizes = np.array([len(part) for part in rows])
        if not sizes.all():
            raise ConfigError(
                f"FlowerDatasets: {self.partitioner} leaves {np.count_nonzero(sizes == 0)} clients "
                "without a sample; write settings that do not, or fewer clients",
                key=("settings",),
            )
        return Shares(rows=np.concatenate(rows), offsets=np.concatenate([[0], np.cumsum(sizes)]))

    def _arguments(self) -> dict[str, Any]:
        try:
            return tomllib.loads("\n".join(self.settings))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"FlowerDatasets: settings = {list(self.settings)}, expected a list of "
                f"'key = value' as in TOML: {error}",
                key=("settings",),
            ) from None
