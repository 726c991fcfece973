"""How the files of each public data set are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.learning.sources.assembly import RawData
from fedmuster.learning.sources.formats import (
    Batch,
    damaged,
    read_cifar_batch,
    read_filtered_cifar,
    read_idx,
    read_npz,
    read_table,
)

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
    return RawData(
        train_inputs=_one_channel(arrays["x_train"]),
        train_targets=arrays["y_train"],
        test_inputs=_one_channel(arrays["x_test"]),
        test_targets=arrays["y_test"],
        train_owners=arrays.get("writer_train"),
    )


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
    return RawData(
        train_inputs=_one_channel(train_images),
        train_targets=train_labels,
        test_inputs=_one_channel(test_images),
        test_targets=test_labels,
        train_owners=writers,
    )


def cifar_binary(files: Files) -> RawData:
    """Five training batches and a test batch, joined in their order."""
    *train, test = (read_cifar_batch(files[name]) for name in CIFAR_BATCHES)
    images = np.concatenate([batch.images for batch in train])
    return _of_batches(Batch(images, np.concatenate([batch.labels for batch in train])), test)


def cifar_filtered(files: Files) -> RawData:
    """Two filtered .npz files."""
    train, test = (read_filtered_cifar(files[name]) for name in FILTERED_CIFAR)
    return _of_batches(train, test)


def har_npz(files: Files) -> RawData:
    """Windows x [n, 128, 9], y, subject, is_train (the official split by subjects)."""
    (path,) = files.values()
    arrays = _of_equal_length(path, read_npz(path, ("x", "y", "subject", "is_train")))
    train = arrays["is_train"]
    if arrays["x"].ndim != 3 or train.dtype != np.bool_:
        raise damaged(path, "x must have 3 axes and is_train hold truth values")
    return _split(arrays["x"].swapaxes(1, 2), arrays["y"], arrays["subject"], train, full_scale=1.0)


def har_text(files: Files) -> RawData:
    """UCI's own text files: for each channel a line of 128 numbers per window; labels from 1."""
    inputs, labels, subjects = {}, {}, {}
    for part in ("train", "test"):
        windows = [
            read_table(files[f"{part}/Inertial Signals/{channel}_{part}.txt"])
            for channel in _CHANNELS
        ]
        for channel, table in zip(_CHANNELS, windows, strict=True):
            if table.shape != windows[0].shape:
                path = files[f"{part}/Inertial Signals/{channel}_{part}.txt"]
                raise damaged(path, f"it holds {table.shape}, the others {windows[0].shape}")
        inputs[part] = np.stack(windows, axis=1)
        labels[part] = read_table(files[f"{part}/y_{part}.txt"])[:, 0].astype(np.int64) - 1
        subjects[part] = read_table(files[f"{part}/subject_{part}.txt"])[:, 0].astype(np.int64)
    return RawData(
        train_inputs=inputs["train"],
        train_targets=labels["train"],
        test_inputs=inputs["test"],
        test_targets=labels["test"],
        train_owners=subjects["train"],
        full_scale=1.0,
    )


def audiomnist_npz(files: Files) -> RawData:
    """Spectrograms x uint8[n, 32, 32], y, speaker; some speakers are kept for the test."""
    (path,) = files.values()
    arrays = _of_equal_length(path, read_npz(path, ("x", "y", "speaker")))
    speaker = arrays["speaker"]
    train = ~np.isin(speaker, AUDIOMNIST_TEST_SPEAKERS)
    return _split(_one_channel(arrays["x"]), arrays["y"], speaker, train, full_scale=255.0)


def _of_batches(train: Batch, test: Batch) -> RawData:
    return RawData(
        train_inputs=train.images,
        train_targets=train.labels,
        test_inputs=test.images,
        test_targets=test.labels,
    )


def _one_channel(images: NDArray[Any]) -> NDArray[Any]:
    return images[:, np.newaxis]


def _split(
    x: NDArray[Any],
    y: NDArray[Any],
    owners: NDArray[Any],
    train: NDArray[np.bool_],
    *,
    full_scale: float,
) -> RawData:
    return RawData(
        train_inputs=x[train],
        train_targets=y[train],
        test_inputs=x[~train],
        test_targets=y[~train],
        train_owners=owners[train],
        full_scale=full_scale,
    )


def _of_equal_length(path: Path, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or arrays["y"].ndim != 1:
        raise damaged(path, f"its arrays must have one row per sample, they have {lengths}")
    return arrays
