"""AudioMNIST's pictures against SciPy and against sums written out."""

import io
import wave
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal

from fedmuster.core.errors import DataError
from fedmuster.training.data import AudioMNIST
from fedmuster.training.data.formats import SAMPLE_RATE, spectrogram
from fedmuster.training.data.public_sets import convert

RATE = 48_000


def tone(frequency: float, *, rate: int = RATE, seconds: float = 0.6) -> NDArray[np.float64]:
    time = np.arange(round(rate * seconds)) / rate
    return np.round(20_000 * np.sin(2 * np.pi * frequency * time))


def wav(samples: NDArray[np.float64], *, channels: int = 1) -> bytes:
    image = io.BytesIO()
    with wave.open(image, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())
    return image.getvalue()


def written_out(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same picture by SciPy's resampling, a plain sum for each frequency, and loops."""
    sound = signal.resample(samples, round(len(samples) * SAMPLE_RATE / RATE))
    sound = sound / np.abs(sound).max()
    missing = 8250 - len(sound)
    sound = np.concatenate([np.zeros(missing // 2), sound, np.zeros(missing - missing // 2)])
    mel = np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 34)
    corner = 700 * (10 ** (mel / 2595) - 1)
    time, frequency = np.arange(500), np.arange(251) * 16.0
    wavy = np.exp(-2j * np.pi * np.outer(frequency, time) / SAMPLE_RATE)
    picture = np.empty((32, 32))
    for frame in range(32):
        piece = sound[250 * frame : 250 * frame + 500] * signal.windows.hann(500, sym=True)
        power = np.abs(wavy @ piece) ** 2
        for band in range(32):
            triangle = np.interp(frequency, corner[band : band + 3], [0, 1, 0])
            decibels = 10 * np.log10(max(triangle @ power, 1e-10))
            picture[band, frame] = 255 * min(max((decibels + 40) / 80, 0), 1)
    return picture


def test_as_written_out() -> None:
    # 5,001 samples at 8 kHz: of an even number SciPy counts the one frequency of 4 kHz twice.
    length = 30_006
    noise = np.random.default_rng(0).standard_normal(length)
    samples = np.round(3000 * noise * np.hanning(length))
    assert np.abs(spectrogram(samples, RATE) - written_out(samples)).max() <= 0.5 + 1e-6


def test_a_tone_is_a_bright_line_at_its_height() -> None:
    heights = [
        int(spectrogram(tone(f), RATE)[:, 16].argmax()) for f in (200, 500, 1000, 2000, 3500)
    ]
    assert heights == sorted(set(heights))
    picture = spectrogram(tone(1000), RATE)
    assert picture[:, 0].max() == 0  # silence around the 0.6 s
    assert picture[heights[2], 16] == 255
    assert np.array_equal(picture, spectrogram(tone(1000) / 2, RATE))  # loudness does not matter
    assert spectrogram(np.zeros(100), RATE).max() == 0
    assert spectrogram(tone(1000, seconds=3), RATE).shape == (32, 32)


def test_convert_and_load(tmp_path: Path) -> None:
    for speaker in (1, 2, 5):
        folder = tmp_path / f"data/{speaker:02}"
        folder.mkdir(parents=True)
        for digit in (0, 7):
            image = wav(tone(300.0 * speaker + 50 * digit))
            (folder / f"{digit}_{speaker:02}_13.wav").write_bytes(image)
    told: list[tuple[int, int]] = []
    path = convert(tmp_path / "data", tmp_path, progress=lambda *done: told.append(done))
    assert told[-1] == (6, 6)
    data = AudioMNIST(folder=str(tmp_path)).load(0)
    assert path == tmp_path / "audiomnist/audiomnist_logmel.npz"
    assert data.train_owners is not None
    assert data.train_owners.tolist() == [1, 1, 2, 2]
    assert data.train_targets.tolist() == [0, 7, 0, 7]
    assert data.test_targets.tolist() == [0, 7]  # speaker 5
    expected = spectrogram(tone(600 + 350), RATE)
    assert np.array_equal(np.rint(255 * data.train_inputs[3, 0]), expected)


@pytest.mark.parametrize(
    "image",
    [b"", b"no sound", wav(tone(500))[:1000], wav(np.zeros(0)), wav(np.zeros(100), channels=2)],
)
def test_damaged_recordings(tmp_path: Path, image: bytes) -> None:
    (tmp_path / "01").mkdir()
    (tmp_path / "01/0_01_0.wav").write_bytes(image)
    with pytest.raises(DataError, match=r"0_01_0\.wav"):
        convert(tmp_path, tmp_path)
    assert not (tmp_path / "audiomnist").exists()


def test_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        convert(tmp_path, tmp_path)
