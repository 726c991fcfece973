"""Bytes bent at random, as disks, copies and hands bend them; the same seed bends the same way."""

from collections.abc import Callable
from typing import Final

import numpy as np

Rng = np.random.Generator


def mutated(image: bytes, seed: int) -> bytes:
    """The image with one to three changes."""
    rng = np.random.default_rng(seed)
    bent = bytearray(image)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        _CHANGES[int(rng.integers(len(_CHANGES)))](bent, rng)
    return bytes(bent)


def _place(bent: bytearray, rng: Rng) -> int:
    return int(rng.integers(max(len(bent), 1)))


def _turn_a_bit(bent: bytearray, rng: Rng) -> None:
    if bent:
        bent[_place(bent, rng)] ^= 1 << int(rng.integers(8))


def _write_a_byte(bent: bytearray, rng: Rng) -> None:
    if bent:
        bent[_place(bent, rng)] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))


def _cut_off(bent: bytearray, rng: Rng) -> None:
    del bent[_place(bent, rng) :]


def _cut_out(bent: bytearray, rng: Rng) -> None:
    at = _place(bent, rng)
    del bent[at : at + int(rng.integers(1, 64))]


def _insert(bent: bytearray, rng: Rng) -> None:
    bent[_place(bent, rng) : 0] = rng.bytes(int(rng.integers(1, 32)))


def _repeat(bent: bytearray, rng: Rng) -> None:
    at = _place(bent, rng)
    part = bent[at : at + int(rng.integers(1, 256))]
    bent[at:at] = part


def _blank_a_sector(bent: bytearray, rng: Rng) -> None:
    at = _place(bent, rng) // 512 * 512
    length = min(512, len(bent) - at)
    bent[at : at + length] = bytes(length)


def _exchange_sectors(bent: bytearray, rng: Rng) -> None:
    one, other = sorted(_place(bent, rng) // 512 * 512 for _ in range(2))
    if other - one >= 512 and len(bent) >= other + 512:
        bent[one : one + 512], bent[other : other + 512] = (
            bent[other : other + 512],
            bent[one : one + 512],
        )


def _write_a_digit(bent: bytearray, rng: Rng) -> None:
    digits = [at for at, byte in enumerate(bent) if 48 <= byte <= 57]
    if digits:
        bent[int(rng.choice(digits))] = int(rng.integers(48, 58))


def _write_a_huge_number(bent: bytearray, rng: Rng) -> None:
    digits = [at for at, byte in enumerate(bent) if 48 <= byte <= 57]
    if digits:
        at = int(rng.choice(digits))
        bent[at : at + 1] = rng.choice([b"9" * 30, b"1e999", b"-1", b"nan", b"9" * 5_000])


def _write_a_length(bent: bytearray, rng: Rng) -> None:
    """A little-endian number of four bytes, such as a size in a header."""
    at = _place(bent, rng)
    bent[at : at + 4] = int(rng.choice([0, 1, 2**31 - 1, 2**32 - 1])).to_bytes(4, "little")


_CHANGES: Final[tuple[Callable[[bytearray, Rng], None], ...]] = (
    *(_turn_a_bit, _turn_a_bit, _turn_a_bit, _write_a_byte, _cut_off, _cut_out, _insert, _repeat),
    *(_blank_a_sector, _exchange_sectors, _write_a_digit, _write_a_huge_number, _write_a_length),
)
