"""Data sets that others publish: images, movements, speech."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from fedmuster.core.errors import DataError
from fedmuster.learning.records import DataSet
from fedmuster.learning.sources.assembly import Limits, assemble
from fedmuster.learning.sources.catalogue import PUBLIC_SETS
from fedmuster.learning.sources.folders import Found, find


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicData(Limits):
    """A published data set, from files.

    Args:
        folder: where the files lie; None to search FEDMUSTER_DATA, what ``fedmuster data fetch``
            has put into the cache, and where a package of the operating system puts them.
        train_limit: at most so many training samples, chosen at random by the seed; None for all.
        test_limit: the same for test samples.
    """

    name: ClassVar[str]

    folder: str | None = None

    def load(self, seed: int) -> DataSet:
        """Read the files; what has been read last is kept while they do not change."""
        found = find(PUBLIC_SETS[self.name], self.folder)
        return _load(found, self, seed if self.random else 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class MNIST(PublicData):
    """Handwritten digits, 28 × 28; owners are the 539 training writers, where they are known."""

    name: ClassVar[str] = "mnist"


@dataclass(frozen=True, kw_only=True, slots=True)
class FashionMNIST(PublicData):
    """Ten kinds of clothing, 28 × 28."""

    name: ClassVar[str] = "fashion-mnist"


@dataclass(frozen=True, kw_only=True, slots=True)
class CIFAR10(PublicData):
    """Ten kinds of things, 32 × 32 in colour."""

    name: ClassVar[str] = "cifar-10"


@dataclass(frozen=True, kw_only=True, slots=True)
class UCIHAR(PublicData):
    """Six activities from 2.56 s of nine phone sensors; owners are the 21 training subjects.

    The nine test subjects are others (the official split).
    """

    name: ClassVar[str] = "uci-har"


@dataclass(frozen=True, kw_only=True, slots=True)
class AudioMNIST(PublicData):
    """Spoken digits as 32 × 32 log-mel spectrograms; owners are the 48 training speakers.

    The twelve test speakers are others: those of the first fold of the data's authors (Becker et
    al. 2018), so that it is unknown voices that are recognised.
    """

    name: ClassVar[str] = "audiomnist"


@lru_cache(maxsize=1)  # one, because CIFAR-10 alone takes 0.7 GB
def _load(found: Found, limits: Limits, seed: int) -> DataSet:
    raw = found.read()
    try:
        for inputs in (raw.train_inputs, raw.test_inputs):
            if inputs.shape[1:] != found.public.shape:
                raise DataError(
                    f"an input has shape {inputs.shape[1:]}, expected {found.public.shape}"
                )
        return assemble(raw, num_classes=found.public.num_classes, limits=limits, seed=seed)
    except DataError as error:
        raise DataError(f"{found.describe()}: {error}") from error
