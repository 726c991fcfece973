"""The public data sets: what they hold, how their files lie, where they are published."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.files import write_file
from fedmuster.training.data import formats as layouts
from fedmuster.training.data.assembly import DATASETS, Limits, assemble
from fedmuster.training.data.data_files import (
    Download,
    Found,
    Layout,
    Progress,
    PublicSet,
    cache_folder,
    download,
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


def _grey_images(
    *,
    title: str,
    name: str,
    downloads: Mapping[str, str],
    other_md5: str,
    optional: tuple[str, ...] = (),
    **others: Any,
) -> PublicSet:
    """A set of the size and file names of MNIST; ``downloads`` has the MD5 sum of each URL."""
    read, files = layouts.images_idx, layouts.IDX_FILES
    idx = Layout(files=files, read=read, called=_IDX, optional=optional, other_md5=other_md5)
    return PublicSet(
        title=title,
        samples=(60_000, 10_000),
        shape=(1, 28, 28),
        num_classes=10,
        layouts=(Layout(files=(f"{name}.npz",), read=layouts.images_npz), idx),
        downloads=tuple(Download(url=u, checksum=f"md5:{md5}") for u, md5 in downloads.items()),
        **others,
    )


PUBLIC_SETS: Final[dict[str, PublicSet]] = {
    "mnist": _grey_images(
        title="MNIST",
        name="mnist",
        other_md5=FASHION_LABELS_MD5,
        optional=(layouts.WRITER_FILE,),
        subfolders=("mnist", "MNIST/raw"),
        how_to_get=_fetch("mnist", 12),
        downloads={
            f"{_MNIST_URL}train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            f"{_MNIST_URL}train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            f"{_MNIST_URL}t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            f"{_MNIST_URL}t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            f"{_QMNIST_URL}{layouts.WRITER_FILE}.gz": "0058f8dd561b90ffdd0f734c6a30e5e4",
        },
    ),
    "fashion-mnist": _grey_images(
        title="Fashion-MNIST",
        name="fashion_mnist",
        other_md5=MNIST_LABELS_MD5,
        subfolders=("fashion-mnist", "FashionMNIST/raw"),
        system_folders=("/usr/share/datasets/fashion-mnist",),
        how_to_get="apt install dataset-fashion-mnist (Debian, Ubuntu), or "
        + _fetch("fashion-mnist", 31),
        downloads={
            f"{_FASHION_URL}train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            f"{_FASHION_URL}train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            f"{_FASHION_URL}t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            f"{_FASHION_URL}t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        },
    ),
    "cifar-10": PublicSet(
        title="CIFAR-10",
        samples=(50_000, 10_000),
        shape=(3, 32, 32),
        num_classes=10,
        layouts=(
            Layout(files=layouts.FILTERED_CIFAR, read=layouts.cifar_filtered),
            Layout(
                files=layouts.CIFAR_BATCHES,
                read=layouts.cifar_binary,
                called="cifar-10-batches-bin with data_batch_1.bin … data_batch_5.bin and "
                "test_batch.bin",
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
    ),
    "uci-har": PublicSet(
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
    ),
    "audiomnist": PublicSet(
        title="AudioMNIST",
        samples=(24_000, 6_000),
        shape=(1, 32, 32),
        num_classes=10,
        layouts=(Layout(files=("audiomnist_logmel.npz",), read=layouts.audiomnist_npz),),
        subfolders=("audiomnist",),
        how_to_get="git clone https://github.com/soerenab/AudioMNIST, then "
        "fedmuster data convert AudioMNIST/data",
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicData(Limits):
    """A published data set, from files.

    Args:
        folder: where the files lie; None to search FEDMUSTER_DATA, what ``fedmuster data fetch``
            has put into the cache, and where a package of the operating system puts them.
        train_limit: the largest number of training samples, drawn by the seed; None for all.
        test_limit: the same for test samples.
    """

    folder: str | None = None

    def load(self, seed: int) -> DataSet:
        """Read the files; what has been read last is kept while they do not change."""
        found = find(PUBLIC_SETS[self.name], self.folder)
        return _load(found, self, seed if self.random else 0)


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class MNIST(PublicData):
    """Handwritten digits, 28 × 28; owners are the 539 training writers, where they are known."""

    name: ClassVar[str] = "mnist"


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FashionMNIST(PublicData):
    """Ten kinds of clothing, 28 × 28."""

    name: ClassVar[str] = "fashion-mnist"


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class CIFAR10(PublicData):
    """Ten kinds of things, 32 × 32 in colour."""

    name: ClassVar[str] = "cifar-10"


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class UCIHAR(PublicData):
    """Six activities from 2.56 s of nine phone sensors; owners are the 21 training subjects.

    The nine test subjects are others (the official split).
    """

    name: ClassVar[str] = "uci-har"


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class AudioMNIST(PublicData):
    """Spoken digits as 32 × 32 log-mel spectrograms; owners are the 48 training speakers.

    The twelve test speakers are others: those of the first fold of the data's authors (Becker et
    al. 2018), so that it is unknown voices that are recognised.
    """

    name: ClassVar[str] = "audiomnist"


def fetch(name: str, to: Path | None = None, *, progress: Progress | None = None) -> list[Path]:
    """Download the data set ``name`` into ``to/name`` and return its files.

    ``to`` is a data folder; None for the user's cache, where every experiment looks.
    """
    public = PUBLIC_SETS.get(name)
    if public is None:
        raise ConfigError(
            f"nothing to fetch for {name!r}; expected one of: "
            + ", ".join(name for name, public in PUBLIC_SETS.items() if public.downloads)
        )
    if not public.downloads:
        raise ConfigError(f"{public.title} has no direct download: {public.how_to_get}")
    return download(public, (to or cache_folder()) / name, progress)


def convert(
    recordings: Path, to: Path | None = None, *, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write ``to/audiomnist/audiomnist_logmel.npz`` from the folders 01 … 60 of the recordings.

    A recording is called ``digit_speaker_take.wav``. ``progress`` is told how many recordings are
    done, and how many there are.
    """
    paths = sorted(recordings.glob("[0-9][0-9]/[0-9]_[0-9][0-9]_*.wav"))
    if not paths:
        raise DataError(
            f"{recordings} holds no recordings such as 01/0_01_0.wav; expected the folder data of "
            "https://github.com/soerenab/AudioMNIST"
        )
    pictures = np.empty((len(paths), layouts.NUM_BANDS, layouts.NUM_FRAMES), dtype=np.uint8)
    for number, path in enumerate(paths):
        pictures[number] = layouts.spectrogram(*layouts.read_wave(path))
        if progress is not None:
            progress(number + 1, len(paths))
    labels = np.array([path.name.split("_")[:2] for path in paths], dtype=np.uint8)
    image = io.BytesIO()
    np.savez_compressed(image, x=pictures, y=labels[:, 0], speaker=labels[:, 1])
    target = (to or cache_folder()) / "audiomnist" / "audiomnist_logmel.npz"
    write_file(target, image.getvalue())
    return target


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
