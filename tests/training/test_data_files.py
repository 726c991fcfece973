"""Public data sets from tiny files in each of their layouts; damaged, missing and foreign files."""

import gzip
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.training.data import CIFAR10, DATASETS, MNIST, UCIHAR, AudioMNIST, FashionMNIST
from fedmuster.training.data import public_sets as catalogue
from fedmuster.training.data.data_files import find
from fedmuster.training.data.formats import AUDIOMNIST_TEST_SPEAKERS, CIFAR_BATCHES
from fedmuster.training.data.public_sets import PublicData

NUM_TRAIN, NUM_TEST = 30, 20
WRITERS = np.repeat([7, 3, 2100], 10).astype(np.uint16)


@pytest.fixture(autouse=True)
def no_data_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDMUSTER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fashion = catalogue.PUBLIC_SETS["fashion-mnist"]
    here = replace(fashion, system_folders=(str(tmp_path / "system"),))
    monkeypatch.setitem(catalogue.PUBLIC_SETS, "fashion-mnist", here)


def labels(count: int, num_classes: int = 10) -> NDArray[np.uint8]:
    return (np.arange(count) % num_classes).astype(np.uint8)


def pixels(seed: int, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def grey_images() -> dict[str, NDArray[Any]]:
    return {
        "x_train": pixels(1, NUM_TRAIN, 28, 28),
        "y_train": labels(NUM_TRAIN),
        "x_test": pixels(2, NUM_TEST, 28, 28),
        "y_test": labels(NUM_TEST),
    }


def idx(array: NDArray[Any]) -> bytes:
    """By the book: zero, zero, type, number of axes; sizes; values, all most significant first."""
    kind = {"u1": 0x08, "i4": 0x0C}[array.dtype.str[1:]]
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    big_endian = array.astype(array.dtype.newbyteorder(">"))
    return bytes([0, 0, kind, array.ndim]) + sizes + big_endian.tobytes()


def write_idx(folder: Path, *, packed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = grey_images()
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images, classes = idx(arrays[f"x_{part}"]), idx(arrays[f"y_{part}"])
        for name, image in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", classes)):
            path = folder / f"{prefix}-{name}{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(image) if packed else image)


def write_npz(path: Path, **arrays: NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


COLOURS, COLOUR_LABELS = pixels(3, 60, 3, 32, 32), labels(60)[::-1].copy()


def write_batches(folder: Path) -> None:
    """<1 × label><3072 × pixel> for each image, as CIFAR's page says; ten images a batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CIFAR_BATCHES):
        rows = range(10 * number, 10 * number + 10)
        image = b"".join(bytes([COLOUR_LABELS[i]]) + COLOURS[i].tobytes() for i in rows)
        (folder / name).write_bytes(image)


def write_filtered(folder: Path) -> None:
    """R-G, G, B-G, differenced along rows and columns, modulo 256, in plain integers."""
    red, green, blue = COLOURS.astype(np.int64).transpose(1, 0, 2, 3)
    planes = np.stack([red - green, green, blue - green])
    planes = np.diff(np.diff(planes, axis=3, prepend=0), axis=2, prepend=0) % 256
    for name, rows in (("cifar10_train.npz", slice(50)), ("cifar10_test.npz", slice(50, 60))):
        write_npz(folder / name, d=planes[:, rows].astype(np.uint8), y=COLOUR_LABELS[rows])


def har_windows() -> NDArray[np.float16]:
    """[10, 128, 9], the first five for training; exact in half precision and in text."""
    return np.round(np.random.default_rng(4).normal(size=(10, 128, 9)) * 64).astype(np.float16)


def write_har_text(folder: Path) -> None:
    channels = "total_acc_x total_acc_y total_acc_z body_acc_x body_acc_y body_acc_z"
    channels += " body_gyro_x body_gyro_y body_gyro_z"
    for part, windows in zip(("train", "test"), np.split(har_windows(), 2), strict=True):
        signals = folder / part / "Inertial Signals"
        signals.mkdir(parents=True, exist_ok=True)
        for number, channel in enumerate(channels.split()):
            np.savetxt(signals / f"{channel}_{part}.txt", windows[:, :, number], fmt=" %.7e")
        np.savetxt(folder / part / f"y_{part}.txt", [1, 6, 2, 3, 4], fmt="%d")
        np.savetxt(folder / part / f"subject_{part}.txt", [5, 5, 9, 9, 9], fmt="%d")


def write_har_npz(folder: Path) -> None:
    write_npz(
        folder / "uci_har.npz",
        x=har_windows(),
        y=np.array([0, 5, 1, 2, 3] * 2, dtype=np.uint8),
        subject=np.array([5, 5, 9, 9, 9] * 2, dtype=np.uint8),
        is_train=np.arange(10) < 5,
    )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("subfolder", ["", "mnist", "MNIST/raw"])
def test_idx_files(tmp_path: Path, subfolder: str, packed: bool) -> None:
    write_idx(tmp_path / subfolder, packed=packed)
    data, arrays = MNIST(folder=str(tmp_path)).load(0), grey_images()
    assert data.train_inputs.dtype == np.float32
    assert np.array_equal(data.train_inputs, (arrays["x_train"] / 255)[:, None].astype(np.float32))
    assert np.array_equal(data.test_inputs, (arrays["x_test"] / 255)[:, None].astype(np.float32))
    assert np.array_equal(data.train_targets, arrays["y_train"])
    assert np.array_equal(data.test_targets, arrays["y_test"])
    assert data.num_classes == 10
    assert data.train_owners is None
    assert data.mean == pytest.approx(float((arrays["x_train"] / 255).mean()), rel=1e-6)
    assert data.sd == pytest.approx(float((arrays["x_train"] / 255).std()), rel=1e-6)


def test_writers_from_npz_and_from_qmnist(tmp_path: Path) -> None:
    write_npz(tmp_path / "a/mnist.npz", **grey_images(), writer_train=WRITERS)
    by_npz = MNIST(folder=str(tmp_path / "a")).load(0)
    write_idx(tmp_path / "b")
    table = np.zeros((NUM_TRAIN, 8), dtype=np.int32)
    table[:, 0], table[:, 2] = labels(NUM_TRAIN), WRITERS
    path = tmp_path / "b/qmnist-train-labels-idx2-int.gz"
    path.write_bytes(gzip.compress(idx(table)))
    by_idx = MNIST(folder=str(tmp_path / "b")).load(0)
    assert by_npz.train_owners is not None
    assert by_idx.train_owners is not None
    assert by_npz.train_owners.dtype == by_idx.train_owners.dtype == np.int64
    assert by_npz.train_owners.tolist() == by_idx.train_owners.tolist() == WRITERS.tolist()
    assert np.array_equal(by_npz.train_inputs, by_idx.train_inputs)
    table[3, 0] += 1  # the table of other images
    path.write_bytes(gzip.compress(idx(table)))
    with pytest.raises(DataError, match="qmnist-train-labels"):
        MNIST(folder=str(tmp_path / "b")).load(0)


@pytest.mark.parametrize("write", [write_batches, write_filtered])
def test_cifar(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "cifar-10")
    data = CIFAR10(folder=str(tmp_path)).load(0)
    expected = (COLOURS / 255).astype(np.float32)
    assert np.array_equal(data.train_inputs, expected[:50])
    assert np.array_equal(data.test_inputs, expected[50:])
    assert data.train_targets.tolist() == COLOUR_LABELS[:50].tolist()
    assert data.test_targets.tolist() == COLOUR_LABELS[50:].tolist()
    assert data.train_inputs.flags.c_contiguous


@pytest.mark.parametrize("write", [write_har_text, write_har_npz])
def test_uci_har(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    data = UCIHAR(folder=str(tmp_path)).load(0)
    windows = har_windows().astype(np.float32).transpose(0, 2, 1)
    assert np.array_equal(data.train_inputs, windows[:5])
    assert np.array_equal(data.test_inputs, windows[5:])
    assert data.train_inputs.flags.c_contiguous
    assert data.train_targets.tolist() == data.test_targets.tolist() == [0, 5, 1, 2, 3]
    assert data.num_classes == 6
    assert data.train_owners is not None
    assert data.train_owners.tolist() == [5, 5, 9, 9, 9]


def test_audiomnist_tests_on_unknown_voices(tmp_path: Path) -> None:
    pictures, speakers = pixels(5, 120, 32, 32), np.tile(np.arange(1, 61), 2).astype(np.uint8)
    write_npz(tmp_path / "audiomnist_logmel.npz", x=pictures, y=labels(120), speaker=speakers)
    data = AudioMNIST(folder=str(tmp_path)).load(0)
    assert data.train_inputs.shape == (96, 1, 32, 32)
    assert data.test_inputs.shape == (24, 1, 32, 32)
    assert data.train_owners is not None
    kept = sorted(set(range(1, 61)) - set(AUDIOMNIST_TEST_SPEAKERS))
    assert np.unique(data.train_owners).tolist() == kept
    chosen = np.isin(speakers, AUDIOMNIST_TEST_SPEAKERS)
    assert np.array_equal(data.test_inputs[:, 0], (pictures[chosen] / 255).astype(np.float32))


def test_sources_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def place(folder: Path, bright: int) -> None:
        arrays = {**grey_images(), "x_train": np.full((NUM_TRAIN, 28, 28), bright, dtype=np.uint8)}
        write_npz(folder / "fashion_mnist.npz", **arrays)

    def brightness(**settings: Any) -> float:
        return round(255 * FashionMNIST(**settings).load(0).mean)

    place(tmp_path / "system", 4)
    assert brightness() == 4
    place(tmp_path / "cache/fedmuster/fashion-mnist", 3)
    assert brightness() == 3
    monkeypatch.setenv("FEDMUSTER_DATA", str(tmp_path / "named"))
    assert brightness() == 3  # what the variable names has not got it
    place(tmp_path / "named", 2)
    assert brightness() == 2
    place(tmp_path / "given", 1)
    assert brightness(folder=str(tmp_path / "given")) == 1
    with pytest.raises(DataError):
        brightness(folder=str(tmp_path / "elsewhere"))  # a typo is not made good by other data


def test_missing_sets_say_how_to_get_them(tmp_path: Path) -> None:
    for kind in DATASETS.values():
        if issubclass(kind, PublicData):
            with pytest.raises(DataError) as error:
                kind().load(0)
            text = str(error.value)
            assert f"{tmp_path}/cache/fedmuster" in text
            assert ".npz" in text
            assert "FEDMUSTER_DATA" in text
            assert f"fedmuster data fetch {kind.name}" in text or kind is AudioMNIST
    with pytest.raises(DataError, match="dataset-fashion-mnist"):
        FashionMNIST().load(0)
    with pytest.raises(DataError):
        AudioMNIST().load(0)


def test_pickled_cifar_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-batches-py/data_batch_1"
    path.parent.mkdir()
    path.write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(DataError, match=r"data_batch_1 is there, but is Python's pickled version"):
        CIFAR10(folder=str(tmp_path)).load(0)


def test_a_part_of_the_files_is_not_enough(tmp_path: Path) -> None:
    write_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte"):
        MNIST(folder=str(tmp_path)).load(0)


def test_mnist_is_not_taken_for_fashion_mnist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path, packed=True)
    md5 = hashlib.md5(idx(grey_images()["y_train"])).hexdigest()
    public = catalogue.PUBLIC_SETS["fashion-mnist"]
    layouts = tuple(
        replace(layout, other_md5=md5) if layout.other_md5 else layout for layout in public.layouts
    )
    assert layouts != public.layouts
    with pytest.raises(DataError):
        find(replace(public, layouts=layouts), str(tmp_path))
    assert find(public, str(tmp_path)).public is public


def truncate(image: bytes) -> bytes:
    return image[: len(image) // 2]


def flip(image: bytes) -> bytes:
    middle = len(image) // 2
    return image[:middle] + bytes([image[middle] ^ 0xFF]) + image[middle + 1 :]


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("t10k-images-idx3-ubyte", truncate),
        ("t10k-images-idx3-ubyte", lambda image: image + b"\0"),
        ("t10k-images-idx3-ubyte", lambda image: image[:6]),
        ("t10k-images-idx3-ubyte", lambda image: b""),
        ("t10k-images-idx3-ubyte", lambda image: b"<html>404 not found</html>"),
        ("t10k-images-idx3-ubyte", lambda image: b"\0\0\x08\0" + image[4:5]),
        ("t10k-images-idx3-ubyte", lambda image: idx(pixels(0, NUM_TEST, 27, 28))),
        ("t10k-images-idx3-ubyte", lambda image: idx(pixels(0, 3, 28, 28))),
        ("train-labels-idx1-ubyte", lambda image: idx(labels(NUM_TRAIN - 1))),
        ("train-labels-idx1-ubyte", lambda image: idx(labels(NUM_TRAIN, 11))),
        ("train-labels-idx1-ubyte.gz", truncate),
        ("train-labels-idx1-ubyte.gz", flip),
        ("train-labels-idx1-ubyte.gz", lambda image: image[10:]),
    ],
)
def test_damaged_idx(tmp_path: Path, name: str, harm: Callable[[bytes], bytes]) -> None:
    write_idx(tmp_path, packed=name.endswith(".gz"))
    (tmp_path / name).write_bytes(harm((tmp_path / name).read_bytes()))
    with pytest.raises(DataError, match=f"{tmp_path}/t"):
        MNIST(folder=str(tmp_path), train_limit=5).load(0)


def test_damaged_npz(tmp_path: Path) -> None:
    good = grey_images()
    path = tmp_path / "mnist.npz"
    config = MNIST(folder=str(tmp_path))
    for change in (
        {"x_train": np.full((NUM_TRAIN, 1, 28, 28), np.inf)},
        {"x_train": np.full((NUM_TRAIN, 28, 28), np.inf)},
        {"x_train": (good["x_train"] / 255).astype(np.float32)},
        {"x_train": good["x_train"][:0], "y_train": good["y_train"][:0]},
        {"x_train": good["x_train"][:, 1:]},
        {"x_train": np.array(3)},
        {"y_train": good["y_train"][1:]},
        {"y_train": good["y_train"].astype(np.float32)},
        {"writer_train": WRITERS[1:]},
    ):
        write_npz(path, **{**good, **change})
        with pytest.raises(DataError, match=str(path)):
            config.load(0)
    write_npz(path, **{key: good[key] for key in ("x_train", "y_train")})
    with pytest.raises(DataError, match=r"mnist\.npz.*x_test.*y_test"):
        config.load(0)


def test_no_damaged_npz_gets_through(tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    write_npz(path, **grey_images())
    image, config = path.read_bytes(), MNIST(folder=str(tmp_path))
    expected = config.load(0)
    rng = np.random.default_rng(0)
    for _ in range(300):
        at = int(rng.integers(len(image)))
        for harmed in (image[:at], image[:at] + bytes([image[at] ^ 0x55]) + image[at + 1 :]):
            path.write_bytes(harmed)
            complaint = ""
            try:
                data = config.load(0)
            except DataError as error:
                complaint = str(error)
            if complaint:
                assert str(path) in complaint
            else:  # a byte that means nothing, such as a file date
                assert np.array_equal(data.train_inputs, expected.train_inputs)
                assert np.array_equal(data.test_targets, expected.test_targets)


def test_an_npy_or_a_pickle_is_no_npz(tmp_path: Path) -> None:
    path, config = tmp_path / "mnist.npz", MNIST(folder=str(tmp_path))
    others = {key: array for key, array in grey_images().items() if key != "x_train"}
    with path.open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(DataError, match=r"mnist\.npz .* no \.npz archive"):
        config.load(0)
    np.savez(path, allow_pickle=True, x_train=np.array([{}], dtype=object), **others)
    with pytest.raises(DataError, match=r"mnist\.npz"):
        config.load(0)
    path.write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(DataError, match=r"mnist\.npz"):
        config.load(0)


def test_damaged_batches_and_tables(tmp_path: Path) -> None:
    write_batches(tmp_path)
    batch = tmp_path / "data_batch_3.bin"
    for image in (batch.read_bytes()[:-1], b""):
        batch.write_bytes(image)
        with pytest.raises(DataError, match=r"data_batch_3\.bin.*3,073"):
            CIFAR10(folder=str(tmp_path)).load(0)
    write_har_text(tmp_path)
    table = tmp_path / "test/Inertial Signals/body_gyro_y_test.txt"
    lines = table.read_text().splitlines()
    for text in ("", "\n".join(lines[:-1]), "\n".join([*lines[:-1], "1 2"]), "a b"):
        table.write_text(text)
        with pytest.raises(DataError, match=r"body_gyro_y_test\.txt"):
            UCIHAR(folder=str(tmp_path)).load(0)


def test_a_limit_takes_a_random_part(tmp_path: Path) -> None:
    write_npz(tmp_path / "mnist.npz", **grey_images(), writer_train=WRITERS)
    all_of_it = MNIST(folder=str(tmp_path)).load(0)
    config = MNIST(folder=str(tmp_path), train_limit=12, test_limit=100)
    part, again, other = config.load(1), config.load(1), config.load(2)
    assert len(part.train_inputs) == 12
    assert np.array_equal(part.train_inputs, again.train_inputs)
    assert not np.array_equal(part.train_inputs, other.train_inputs)
    assert np.array_equal(part.test_inputs, all_of_it.test_inputs)  # at most 100 of 20
    assert all_of_it.train_owners is not None
    assert part.train_owners is not None
    assert part.mean == pytest.approx(float(part.train_inputs.mean(dtype=np.float64)))
    rows = [
        next(i for i, x in enumerate(all_of_it.train_inputs) if np.array_equal(x, image))
        for image in part.train_inputs
    ]
    assert len(set(rows)) == 12
    assert part.train_targets.tolist() == all_of_it.train_targets[rows].tolist()
    assert part.train_owners.tolist() == all_of_it.train_owners[rows].tolist()


def test_loading_again_is_free_until_a_file_changes(tmp_path: Path) -> None:
    write_npz(tmp_path / "mnist.npz", **grey_images())
    config = MNIST(folder=str(tmp_path))
    first = config.load(0)
    assert config.load(1) is first  # without limits the seed does not matter
    for array in (first.train_inputs, first.train_targets, first.test_inputs, first.test_targets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    write_npz(tmp_path / "mnist.npz", **{**grey_images(), "y_train": labels(NUM_TRAIN, 5)})
    os.utime(tmp_path / "mnist.npz", ns=(1, 1))
    assert config.load(0).train_targets.max() == 4


@pytest.mark.parametrize("kind", [k for k in DATASETS.values() if issubclass(k, PublicData)])
def test_configs(kind: type[PublicData]) -> None:
    config = kind(folder="x", train_limit=5)
    table = to_table(config)
    assert table == {"name": kind.name, "train_limit": 5, "folder": "x"}
    assert named(DATASETS, table, key=(), what="data") == config
    with pytest.raises(ConfigError, match=r"test_limit.*0.*1"):
        kind(test_limit=0)
