"""AudioMNIST's recordings as small pictures: 32 mel bands by 32 moments."""

import io
import wave
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.core.errors import DataError
from fedmuster.core.files import write_file
from fedmuster.training.data.data_files import cache_folder
from fedmuster.training.data.formats import Bytes, damaged

SAMPLE_RATE: Final = 8000
NUM_BANDS: Final = 32
NUM_FRAMES: Final = 32
_HOP = SAMPLE_RATE // NUM_FRAMES
_WINDOW = 2 * _HOP
_LENGTH = (NUM_FRAMES - 1) * _HOP + _WINDOW
_DECIBELS = (-40.0, 40.0)  # become 0 and 255

Progress = Callable[[int, int], None]
"""Told how many recordings are done, and of how many."""


def convert(recordings: Path, to: Path | None = None, *, progress: Progress | None = None) -> Path:
    """Write ``to/audiomnist/audiomnist_logmel.npz`` from the folders 01 … 60 of the recordings.

    A recording is called ``digit_speaker_take.wav``.
    """
    paths = sorted(recordings.glob("[0-9][0-9]/[0-9]_[0-9][0-9]_*.wav"))
    if not paths:
        raise DataError(
            f"{recordings} holds no recordings such as 01/0_01_0.wav; expected the folder data of "
            "https://github.com/soerenab/AudioMNIST"
        )
    pictures = np.empty((len(paths), NUM_BANDS, NUM_FRAMES), dtype=np.uint8)
    for number, path in enumerate(paths):
        pictures[number] = spectrogram(*read_wave(path))
        if progress is not None:
            progress(number + 1, len(paths))
    labels = np.array([path.name.split("_")[:2] for path in paths], dtype=np.uint8)
    image = io.BytesIO()
    np.savez_compressed(image, x=pictures, y=labels[:, 0], speaker=labels[:, 1])
    target = (to or cache_folder()) / "audiomnist" / "audiomnist_logmel.npz"
    write_file(target, image.getvalue())
    return target


def read_wave(path: Path) -> tuple[FloatArray, int]:
    """The samples of a mono recording of 16 bits, and how many of them make a second."""
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
    """At :data:`SAMPLE_RATE`, by cutting or extending the spectrum."""
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
