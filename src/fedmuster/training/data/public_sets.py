"""The public data sets: what they hold, how their files lie, where they are published."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from fedmuster.core.errors import DataError
from fedmuster.training.data import formats as layouts
from fedmuster.training.data.assembly import Limits, assemble
from fedmuster.training.data.data_files import (
    Download,
    Found,
    Layout,
    PublicSet,
    find,
    from_tar,
    from_zip_in_zip,
)
from fedmuster.training.training_records import DataSet

_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_QMNIST_URL = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
_FASHION_URL = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
)
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_HAR_URL = (
    "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip"
)

MNIST_LABELS_MD5: Final = "a25bea736e30d166cdddb491f175f624"
FASHION_LABELS_MD5: Final = "9018921c3c673c538a1fc5bad174d6f9"
"""Of train-labels-idx1-ubyte: both sets use the same file names."""

_IDX = "the four files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-… (or .gz)"
_PICKLED = "is Python's pickled version, which can run anything when it is opened; get the binary"


def _fetch(name: str, megabytes: int) -> str:
    return f"fedmuster data fetch {name} (downloads {megabytes} MB)"


_MNIST = PublicSet(
    name="mnist",
    title="MNIST",
    samples=(60_000, 10_000),
    shape=(1, 28, 28),
    num_classes=10,
    layouts=(
        Layout(files=("mnist.npz",), read=layouts.images_npz),
        Layout(
            files=layouts.IDX_FILES,
            read=layouts.images_idx,
            called=_IDX,
            optional=(layouts.WRITER_FILE,),
            other_md5=FASHION_LABELS_MD5,
        ),
    ),
    subfolders=("mnist", "MNIST/raw"),
    how_to_get=_fetch("mnist", 12),
    downloads=tuple(
        Download(url=url, checksum=f"md5:{md5}")
        for url, md5 in (
            (f"{_MNIST_URL}train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            (f"{_MNIST_URL}train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            (f"{_MNIST_URL}t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
            (f"{_MNIST_URL}t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            (f"{_QMNIST_URL}{layouts.WRITER_FILE}.gz", "0058f8dd561b90ffdd0f734c6a30e5e4"),
        )
    ),
)

_FASHION_MNIST = PublicSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    samples=(60_000, 10_000),
    shape=(1, 28, 28),
    num_classes=10,
    layouts=(
        Layout(files=("fashion_mnist.npz",), read=layouts.images_npz),
        Layout(
            files=layouts.IDX_FILES,
            read=layouts.images_idx,
            called=_IDX,
            other_md5=MNIST_LABELS_MD5,
        ),
    ),
    subfolders=("fashion-mnist", "FashionMNIST/raw"),
    system_folders=("/usr/share/datasets/fashion-mnist",),
    how_to_get="apt install dataset-fashion-mnist (Debian, Ubuntu), or "
    + _fetch("fashion-mnist", 31),
    downloads=tuple(
        Download(url=f"{_FASHION_URL}{file}", checksum=f"md5:{md5}")
        for file, md5 in (
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        )
    ),
)

_CIFAR10 = PublicSet(
    name="cifar-10",
    title="CIFAR-10",
    samples=(50_000, 10_000),
    shape=(3, 32, 32),
    num_classes=10,
    layouts=(
        Layout(files=layouts.FILTERED_CIFAR, read=layouts.cifar_filtered),
        Layout(
            files=layouts.CIFAR_BATCHES,
            read=layouts.cifar_binary,
            called="cifar-10-batches-bin with data_batch_1.bin … data_batch_5.bin, test_batch.bin",
        ),
    ),
    subfolders=("cifar-10-batches-bin", "cifar-10", "cifar-10/cifar-10-batches-bin"),
    how_to_get=_fetch("cifar-10", 170),
    refused=(("data_batch_1", _PICKLED), ("cifar-10-batches-py/data_batch_1", _PICKLED)),
    downloads=(
        Download(
            url=_CIFAR_URL,
            checksum="md5:c32a1d4ab5d03f1284b67883e8d87530",
            unpack=from_tar,
            members=tuple(f"cifar-10-batches-bin/{file}" for file in layouts.CIFAR_BATCHES),
        ),
    ),
)

_UCI_HAR = PublicSet(
    name="uci-har",
    title="UCI-HAR",
    samples=(7_352, 2_947),
    shape=(9, 128),
    num_classes=6,
    layouts=(
        Layout(files=("uci_har.npz",), read=layouts.har_npz),
        Layout(
            files=layouts.HAR_FILES,
            read=layouts.har_text,
            called='"UCI HAR Dataset" with train and test as UCI\'s archive has them',
        ),
    ),
    subfolders=("UCI HAR Dataset", "uci-har", "uci-har/UCI HAR Dataset"),
    how_to_get=_fetch("uci-har", 61),
    downloads=(
        Download(
            url=_HAR_URL,
            checksum="sha256:c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
            unpack=from_zip_in_zip,
            members=tuple(f"UCI HAR Dataset/{file}" for file in layouts.HAR_FILES),
        ),
    ),
)

_AUDIOMNIST = PublicSet(
    name="audiomnist",
    title="AudioMNIST",
    samples=(24_000, 6_000),
    shape=(1, 32, 32),
    num_classes=10,
    layouts=(Layout(files=("audiomnist_logmel.npz",), read=layouts.audiomnist_npz),),
    subfolders=("audiomnist",),
    how_to_get="git clone https://github.com/soerenab/AudioMNIST, then "
    "fedmuster data convert AudioMNIST/data",
)

PUBLIC_SETS: Final[dict[str, PublicSet]] = {
    public.name: public for public in (_MNIST, _FASHION_MNIST, _CIFAR10, _UCI_HAR, _AUDIOMNIST)
}


# Data sets that others publish: images, movements, speech.


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
