"""The real data sets, where FEDMUSTER_DATA names a folder that has them; and the catalogue."""

import hashlib
import os
from pathlib import PurePosixPath

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmuster.training.data import CIFAR10, DATASETS, MNIST, UCIHAR, AudioMNIST, FashionMNIST
from fedmuster.training.data.assembly import RawData
from fedmuster.training.data.data_files import find, look_for
from fedmuster.training.data.formats import AUDIOMNIST_TEST_SPEAKERS
from fedmuster.training.data.public_sets import FASHION_LABELS_MD5, MNIST_LABELS_MD5, PUBLIC_SETS

PUBLISHED_MD5 = {  # train-images, train-labels, t10k-images, t10k-labels, unpacked
    "mnist": [
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ],
    "fashion-mnist": [
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ],
    "cifar-10": [  # data_batch_1.bin … data_batch_5.bin, test_batch.bin
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
        "803d5f7f4d78ea53de84dbe85f74fb6d",
    ],
}


@pytest.fixture
def there() -> set[str]:
    """The names of the sets that are in the folder; tests look at those."""
    if "FEDMUSTER_DATA" not in os.environ:
        pytest.skip("FEDMUSTER_DATA names no folder with real data")
    return {name for name, public in PUBLIC_SETS.items() if look_for(public, None).found}


def raw(name: str) -> RawData:
    return find(PUBLIC_SETS[name], None).read()


def idx_md5(values: NDArray[np.uint8]) -> str:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return hashlib.md5(bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()).hexdigest()


def test_grey_images_are_the_published_ones(there: set[str]) -> None:
    for name in there & {"mnist", "fashion-mnist"}:
        data = raw(name)
        parts = ((data.train_inputs, data.train_targets), (data.test_inputs, data.test_targets))
        got = [idx_md5(values) for x, y in parts for values in (x[:, 0], y)]
        assert got == PUBLISHED_MD5[name]


def test_cifar_is_the_published_one(there: set[str]) -> None:
    for name in there & {"cifar-10"}:
        data = raw(name)
        got = []
        for images, labels in (
            (data.train_inputs, data.train_targets),
            (data.test_inputs, data.test_targets),
        ):
            assert np.bincount(labels).tolist() == [len(images) // 10] * 10
            rows = np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1)
            batches = np.split(rows, len(rows) // 10_000)
            got += [hashlib.md5(batch.tobytes()).hexdigest() for batch in batches]
        assert got == PUBLISHED_MD5[name]


def test_shapes_and_classes(there: set[str]) -> None:
    for kind in (FashionMNIST, CIFAR10, UCIHAR, AudioMNIST):
        if kind.name not in there:
            continue
        public, data = PUBLIC_SETS[kind.name], kind(train_limit=5000).load(0)
        assert data.train_inputs.shape == (5000, *public.shape)
        assert data.test_inputs.shape[1:] == public.shape
        assert data.num_classes == public.num_classes
        assert np.unique(data.train_targets).tolist() == list(range(public.num_classes))
        if kind is not UCIHAR:  # of which one form has a few windows less
            assert 0 <= data.train_inputs.min() < data.train_inputs.max() <= 1
            assert len(data.test_targets) == public.samples[1]


def test_each_class_is_as_frequent_as_published(there: set[str]) -> None:
    for name, each in (("fashion-mnist", 6000), ("audiomnist", 2400)):
        if name in there:
            assert np.bincount(raw(name).train_targets).tolist() == [each] * 10


def test_owners(there: set[str]) -> None:
    for kind, count in ((MNIST, 539), (UCIHAR, 21), (AudioMNIST, 48)):
        if kind.name not in there:
            continue
        data = kind().load(0)
        assert data.train_owners is not None
        owners, sizes = np.unique(data.train_owners, return_counts=True)
        assert len(owners) == count
        if kind is MNIST:
            assert (data.mean, data.sd) == pytest.approx((0.1307, 0.3081), abs=5e-5)
            assert [int(sizes.min()), int(np.median(sizes)), int(sizes.max())] == [19, 116, 131]
        if kind is AudioMNIST:
            assert not np.isin(owners, AUDIOMNIST_TEST_SPEAKERS).any()


def test_the_catalogue_fits_together() -> None:
    assert PUBLISHED_MD5["mnist"][1] == MNIST_LABELS_MD5
    assert PUBLISHED_MD5["fashion-mnist"][1] == FASHION_LABELS_MD5
    for name, public in PUBLIC_SETS.items():
        assert name == DATASETS[name].name
        for download in public.downloads:
            assert download.url.startswith("https://")
            algorithm, _, digest = download.checksum.partition(":")
            assert len(digest) == 2 * hashlib.new(algorithm).digest_size
        if not public.downloads:
            continue
        # What is downloaded lies where it is looked for afterwards, and is complete.
        kept = {
            PurePosixPath(name, file.removesuffix(".gz"))
            for d in public.downloads
            for file in (d.members or (d.url.rpartition("/")[2],))
        }
        assert any(
            {PurePosixPath(subfolder, file) for file in layout.files} <= kept
            for subfolder in public.subfolders
            for layout in public.layouts
        )
