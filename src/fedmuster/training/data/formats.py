"""Decode the formats of published data sets: idx, CIFAR's batches, tables, .npz, recordings.

What is truncated or damaged is refused with the name of the file. Nothing is ever unpickled.
"""

import gzip
import math
import wave
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray
from fedmuster.core.errors import DataError
from fedmuster.training.data.assembly import RawData

Bytes = NDArray[np.uint8]

_IDX_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}
_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_BYTES = 1 + 3 * 32 * 32  # of a sample: its label and its pixels


class Batch(NamedTuple):
    """Inputs [n, …] and their labels [n]."""

    inputs: NDArray[Any]
    labels: NDArray[Any]


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where its name ends in .gz."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            return file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, f"it cannot be unpacked ({error})") from error


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an idx file of bytes or of 32-bit integers, as MNIST's and QMNIST's are.

    The format: two zero bytes, the type, the number of axes, the length of each, the values.
    """
    image = read_bytes(path)
    if len(image) < 4 or image[:2] != b"\0\0" or image[2] not in _IDX_TYPES or not image[3]:
        raise damaged(path, "it does not begin as an idx file of bytes or integers does")
    kind, begin = _IDX_TYPES[image[2]], 4 + 4 * image[3]
    shape = tuple(int.from_bytes(image[at : at + 4], "big") for at in range(4, begin, 4))
    expected = begin + kind.itemsize * math.prod(shape)
    if len(image) != expected:
        raise damaged(path, f"it holds {len(image):,} bytes, its own header says {expected:,}")
    return np.frombuffer(image, dtype=kind, offset=begin).reshape(shape)


def read_cifar_batch(path: Path) -> Batch:
    """A batch of CIFAR-10's binary version: a label, then 3 × 32 × 32 pixels, again and again."""
    image = read_bytes(path)
    if not image or len(image) % _CIFAR_BYTES:
        raise damaged(path, f"it holds {len(image):,} bytes, no multiple of {_CIFAR_BYTES:,}")
    rows = np.frombuffer(image, dtype=np.uint8).reshape(-1, _CIFAR_BYTES)
    return Batch(inputs=rows[:, 1:].reshape(-1, *_CIFAR_SHAPE), labels=rows[:, 0])


def read_filtered_cifar(path: Path) -> Batch:
    """CIFAR-10 images from an .npz in which they are filtered so that they compress.

    ``d`` is uint8[3, n, 32, 32], the planes R-G, G, B-G, differenced along rows and columns, all
    modulo 256; ``y`` are the labels.
    """
    arrays = read_npz(path, ("d", "y"))
    planes = arrays["d"]
    if planes.dtype != np.uint8 or planes.ndim != 4 or planes.shape[::2] != (3, 32):
        raise damaged(path, f"d is {planes.dtype}{planes.shape}, expected uint8 (3, n, 32, 32)")
    for i in range(1, planes.shape[2]):
        planes[:, :, i, :] += planes[:, :, i - 1, :]
    for i in range(1, planes.shape[3]):
        planes[:, :, :, i] += planes[:, :, :, i - 1]
    planes[0] += planes[1]
    planes[2] += planes[1]
    return Batch(inputs=planes.transpose(1, 0, 2, 3), labels=arrays["y"])


def read_table(path: Path) -> NDArray[np.float32]:
    """The numbers of a text file, [rows, columns]."""
    lines = read_bytes(path).decode("ascii", errors="replace").splitlines()
    if not any(lines):
        raise damaged(path, "it is empty")
    try:
        return np.loadtxt(lines, dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise damaged(path, f"it is no table of numbers ({error})") from error


def read_npz(
    path: Path, keys: Sequence[str], *, optional: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """These arrays of an .npz file, and the optional ones where it has them."""
    try:
        # Opened here, because np.load leaves a file open that it cannot read.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise damaged(path, "it is no .npz archive")
            missing = [key for key in keys if key not in archive.files]
            if missing:
                raise damaged(path, f"it has no {', '.join(missing)}")
            wanted = [*keys, *(key for key in optional if key in archive.files)]
            arrays = {key: archive[key] for key in wanted}
    except DataError:
        raise
    except (ValueError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        raise damaged(path, f"it cannot be read as .npz ({error})") from error
    for key, array in arrays.items():
        if array.ndim == 0:
            raise damaged(path, f"{key} is a single value, expected an array")
    return arrays


def damaged(path: Path, complaint: str) -> DataError:
    """The error about a file that is not what it should be."""
    return DataError(f"{path} is damaged or something else: {complaint}; get it anew")


Files = Mapping[str, Path]

IDX_FILES: Final = (
    "train-labels-idx1-ubyte",
    "train-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
)
WRITER_FILE: Final = "qmnist-train-labels-idx2-int"
"""QMNIST's labels: for each of MNIST's 60,000 training images, in its third column, the writer."""
_WRITER_COLUMN = 2

CIFAR_BATCHES: Final = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
FILTERED_CIFAR: Final = ("cifar10_train.npz", "cifar10_test.npz")

_CHANNELS = tuple(
    f"{sensor}_{axis}" for sensor in ("total_acc", "body_acc", "body_gyro") for axis in "xyz"
)
HAR_FILES: Final = tuple(
    file
    for part in ("train", "test")
    for file in (
        *(f"{part}/Inertial Signals/{channel}_{part}.txt" for channel in _CHANNELS),
        f"{part}/y_{part}.txt",
        f"{part}/subject_{part}.txt",
    )
)

AUDIOMNIST_TEST_SPEAKERS: Final = (5, 13, 18, 22, 26, 32, 33, 42, 45, 51, 52, 60)
"""The test speakers of the first of the five folds in which its authors recognise digits."""


def images_npz(files: Files) -> RawData:
    """x_train, y_train, x_test, y_test of grey images, and their writers where they are known."""
    (path,) = files.values()
    keys = ("x_train", "y_train", "x_test", "y_test")
    arrays = read_npz(path, keys, optional=("writer_train",))
    train, test = (_grey(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test"))
    return _raw(train, test, owners=arrays.get("writer_train"))


def images_idx(files: Files) -> RawData:
    """The four idx files of grey images, and QMNIST's of the writers where it is there."""
    train_labels, train_images, test_labels, test_images = (
        read_idx(files[name]) for name in IDX_FILES
    )
    writers = None
    if WRITER_FILE in files:
        table = read_idx(files[WRITER_FILE])
        # Its first column repeats the labels, so a file of other images is noticed.
        if table.ndim != 2 or not np.array_equal(table[:, 0], train_labels):
            raise damaged(files[WRITER_FILE], "its labels are not those of the training images")
        writers = table[:, _WRITER_COLUMN]
    return _raw(_grey(train_images, train_labels), _grey(test_images, test_labels), owners=writers)


def cifar_binary(files: Files) -> RawData:
    """Five training batches and a test batch, joined in their order."""
    *train, test = (read_cifar_batch(files[name]) for name in CIFAR_BATCHES)
    inputs, labels = zip(*train, strict=True)
    return _raw(Batch(np.concatenate(inputs), np.concatenate(labels)), test)


def cifar_filtered(files: Files) -> RawData:
    """Two filtered .npz files."""
    train, test = (read_filtered_cifar(files[name]) for name in FILTERED_CIFAR)
    return _raw(train, test)


def har_npz(files: Files) -> RawData:
    """Windows x [n, 128, 9], y, subject, is_train (the official split by subjects)."""
    (path,) = files.values()
    arrays = _of_equal_length(path, read_npz(path, ("x", "y", "subject", "is_train")))
    train = arrays["is_train"]
    if arrays["x"].ndim != 3 or train.dtype != np.bool_:
        raise damaged(path, "x must have 3 axes and is_train hold truth values")
    windows = Batch(arrays["x"].swapaxes(1, 2), arrays["y"])
    return _split(windows, arrays["subject"], train, full_scale=1.0)


def har_text(files: Files) -> RawData:
    """UCI's own text files: for each channel a line of 128 numbers per window; labels from 1."""
    batches = []
    for part in ("train", "test"):
        paths = [files[f"{part}/Inertial Signals/{channel}_{part}.txt"] for channel in _CHANNELS]
        windows = [read_table(path) for path in paths]
        for path, table in zip(paths, windows, strict=True):
            if table.shape != windows[0].shape:
                raise damaged(path, f"it holds {table.shape}, the others {windows[0].shape}")
        labels = _first_column(files[f"{part}/y_{part}.txt"]) - 1
        batches.append(Batch(np.stack(windows, axis=1), labels))
    train, test = batches
    subjects = _first_column(files["train/subject_train.txt"])
    return _raw(train, test, owners=subjects, full_scale=1.0)


def audiomnist_npz(files: Files) -> RawData:
    """Spectrograms x uint8[n, 32, 32], y, speaker; some speakers are kept for the test."""
    (path,) = files.values()
    arrays = _of_equal_length(path, read_npz(path, ("x", "y", "speaker")))
    train = ~np.isin(arrays["speaker"], AUDIOMNIST_TEST_SPEAKERS)
    return _split(_grey(arrays["x"], arrays["y"]), arrays["speaker"], train, full_scale=255.0)


def _grey(images: NDArray[Any], labels: NDArray[Any]) -> Batch:
    return Batch(images[:, np.newaxis], labels)


def _first_column(path: Path) -> NDArray[np.int64]:
    return read_table(path)[:, 0].astype(np.int64)


def _raw(
    train: Batch, test: Batch, *, owners: NDArray[Any] | None = None, full_scale: float = 255.0
) -> RawData:
    return RawData(
        train_inputs=train.inputs,
        train_targets=train.labels,
        test_inputs=test.inputs,
        test_targets=test.labels,
        train_owners=owners,
        full_scale=full_scale,
    )


def _split(
    samples: Batch, owners: NDArray[Any], train: NDArray[np.bool_], *, full_scale: float
) -> RawData:
    inputs, labels = samples
    return _raw(
        Batch(inputs[train], labels[train]),
        Batch(inputs[~train], labels[~train]),
        owners=owners[train],
        full_scale=full_scale,
    )


def _of_equal_length(path: Path, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or arrays["y"].ndim != 1:
        raise damaged(path, f"its arrays must have one row per sample, they have {lengths}")
    return arrays


SAMPLE_RATE: Final = 8000
NUM_BANDS: Final = 32
NUM_FRAMES: Final = 32
_HOP = SAMPLE_RATE // NUM_FRAMES
_WINDOW = 2 * _HOP
_LENGTH = (NUM_FRAMES - 1) * _HOP + _WINDOW
_DECIBELS = (-40.0, 40.0)  # become 0 and 255


def read_wave(path: Path) -> tuple[FloatArray, int]:
    """The samples of a mono recording of 16 bits, and the sampling rate in Hz."""
    try:
        with wave.open(str(path)) as file:
            if (file.getnchannels(), file.getsampwidth()) != (1, 2):
                raise damaged(path, "it is no mono recording of 16 bits")
            samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
            if len(samples) == 0 or len(samples) != file.getnframes():
                raise damaged(path, f"it holds {len(samples)} of {file.getnframes()} samples")
            return samples.astype(np.float64), file.getframerate()
    except (wave.Error, EOFError) as error:
        raise damaged(path, str(error)) from error


def spectrogram(samples: FloatArray, rate: int) -> Bytes:
    """Its log-mel spectrogram [bands, frames]: low to high, -40 … 40 dB as 0 … 255.

    The recording is resampled to 8 kHz, its peak becomes 1, its middle second is taken (silence
    around a shorter one); windows of 1/16 s (Hann) follow each other every 1/32 s.
    """
    sound = _resampled(samples, rate)
    sound = sound / max(float(np.abs(sound).max()), np.finfo(np.float64).tiny)
    begin = max(0, (len(sound) - _LENGTH) // 2)
    sound = sound[begin : begin + _LENGTH]
    silence = _LENGTH - len(sound)
    sound = np.pad(sound, (silence // 2, silence - silence // 2))
    frames = np.lib.stride_tricks.sliding_window_view(sound, _WINDOW)[::_HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(_WINDOW), axis=1)) ** 2
    decibels = 10.0 * np.log10(np.maximum(_mel_filters() @ power.T, 1e-10))
    low, high = _DECIBELS
    scaled = np.clip((decibels - low) / (high - low), 0.0, 1.0)
    picture: Bytes = np.rint(255.0 * scaled).astype(np.uint8)
    return picture


def _resampled(samples: FloatArray, rate: int) -> FloatArray:
    length = max(1, round(len(samples) * SAMPLE_RATE / rate))
    spectrum = np.fft.rfft(samples)
    return np.asarray(np.fft.irfft(spectrum, length) * (length / len(samples)))


@cache
def _mel_filters() -> FloatArray:
    """[bands, frequencies], triangles that are equally wide in mel = 2595 log10(1 + f / 700)."""
    top = 2595.0 * np.log10(1.0 + SAMPLE_RATE / 2 / 700.0)
    corners = 700.0 * (10.0 ** (np.linspace(0.0, top, NUM_BANDS + 2) / 2595.0) - 1.0)
    frequency = np.fft.rfftfreq(_WINDOW, 1.0 / SAMPLE_RATE)
    low, middle, high = (corners[i : i + NUM_BANDS, None] for i in range(3))
    rising, falling = (frequency - low) / (middle - low), (high - frequency) / (high - middle)
    filters: FloatArray = np.maximum(0.0, np.minimum(rising, falling))
    return filters
