"""``fedmuster data`` as people use it."""

import os
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np

from fedmuster.training.data import DATASETS


def fedmuster(
    *arguments: str | Path, cache: Path, data: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "FEDMUSTER_DATA"}
    environment |= {"COLUMNS": "250", "XDG_CACHE_HOME": str(cache)}
    if data is not None:
        environment["FEDMUSTER_DATA"] = str(data)
    return subprocess.run(
        [sys.executable, "-m", "fedmuster", "data", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )


def test_the_list_says_where_or_how(tmp_path: Path) -> None:
    zeros, labels = np.zeros((10, 28, 28), dtype=np.uint8), np.arange(10, dtype=np.uint8)
    path = tmp_path / "my [data]/fashion_mnist.npz"
    path.parent.mkdir()
    np.savez(path, x_train=zeros, y_train=labels, x_test=zeros, y_test=labels)
    done = fedmuster(cache=tmp_path, data=path.parent)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("│")}
    assert set(lines) - {"name"} == set(DATASETS)
    places = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert places["digits"] == "in this package"
    assert "1,437 + 360" in lines["digits"]
    assert str(path) in places["fashion-mnist"]
    assert "yes" in lines["fashion-mnist"]
    assert "fedmuster data fetch mnist" in places["mnist"]
    assert "no" in lines["mnist"]
    assert "50,000 + 10,000" in lines["cifar-10"]
    assert "3 × 32 × 32" in lines["cifar-10"]
    assert "git clone" in places["audiomnist"]
    assert "regression" in lines["linear-regression"]
    assert str(tmp_path / "fedmuster") in done.stdout


def test_what_cannot_be_fetched_is_told_without_a_traceback(tmp_path: Path) -> None:
    done = fedmuster("fetch", "digitz", cache=tmp_path)
    assert done.returncode == 2
    assert "nothing to fetch for 'digitz'" in done.stderr
    assert "Traceback" not in done.stderr
    done = fedmuster("fetch", "audiomnist", cache=tmp_path)
    assert done.returncode == 2
    assert "git clone" in done.stderr


def test_convert_puts_spectrograms_where_the_list_finds_them(tmp_path: Path) -> None:
    (tmp_path / "data/01").mkdir(parents=True)
    with wave.open(str(tmp_path / "data/01/0_01_0.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(48_000)
        file.writeframes(np.arange(20_000, dtype="<i2").tobytes())
    done = fedmuster("convert", tmp_path / "data", cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "cache/fedmuster/audiomnist/audiomnist_logmel.npz"
    assert f"wrote {path}" in done.stdout
    assert path.is_file()
    assert str(path) in fedmuster(cache=tmp_path / "cache").stdout
