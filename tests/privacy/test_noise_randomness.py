"""Random bytes, comparisons that are never wrong, and inversion by tables, against exact sums."""

import os
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.streams import NOISE, stream
from fedmuster.privacy import discrete_noise as laplace
from fedmuster.privacy.randomness import (
    Inversion,
    RandomBytes,
    UniformReal,
    exponential,
    random_uint16,
    secure_bytes,
    seeded_bytes,
)

SIGNIFICANCE = 1e-6  # of each statistical test; the seeds are fixed
PRECISE = Context(prec=60)


def replay(given: bytes) -> RandomBytes:
    """Hands out these bytes and no more."""
    rest = bytearray(given)

    def random_bytes(count: int) -> bytes:
        taken = bytes(rest[:count])
        del rest[:count]
        assert len(taken) == count, "asked for more random bytes than expected"
        return taken

    return random_bytes


def bytes_of(bits: int) -> bytes:
    """64 bits of a uniform number, in the order in which a single draw asks for them."""
    return b"".join((bits >> shift & 0xFFFF).to_bytes(2, "little") for shift in (48, 32, 16, 0))


def third(context: Context) -> Decimal:
    return context.divide(Decimal(1), Decimal(3))


def test_secure_bytes_are_the_operating_systems() -> None:
    assert secure_bytes is os.urandom
    assert len(secure_bytes(40_000_001)) == 40_000_001  # more than the kernel gives at a time


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_seeded_bytes_repeat(count: int) -> None:
    first, second, other = (seeded_bytes(stream(3, NOISE, key)) for key in (1, 1, 2))
    taken = first(count)
    assert len(taken) == count
    assert second(count) == taken
    assert count < 8 or other(count) != taken


def test_seeded_bytes_are_uniform() -> None:
    counts = np.bincount(np.frombuffer(seeded_bytes(stream(0, NOISE))(10**6), dtype=np.uint8))
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE


def test_random_uint16_is_little_endian_on_every_machine() -> None:
    assert random_uint16(2, replay(b"\x01\x00\x00\x80")).tolist() == [1, 2**15]


@pytest.mark.parametrize(("bits", "below"), [(0b0100, True), (0b0110, False)])
def test_bits_that_decide_are_enough(bits: int, below: bool) -> None:
    assert UniformReal(bits, 4, replay(b"")).is_below(third) is below


@pytest.mark.parametrize(("further", "below"), [(0x5555555555555554, True), (2**63, False)])
def test_more_bits_are_drawn_where_they_do_not(further: int, below: bool) -> None:
    uniform = UniformReal(0b0101, 4, replay(further.to_bytes(8, "little")))  # 1/3 is 0.010101…
    assert uniform.is_below(third) is below


def test_bits_are_remembered_between_comparisons() -> None:
    undecided = b"\x55" * 16
    uniform = UniformReal(0b0101, 4, replay(undecided + b"\x00" * 8))
    assert uniform.is_below(third)
    assert not uniform.is_below(lambda context: Decimal("0.333333333333333333333"))
    assert uniform.is_below(lambda context: Decimal("0.333333333333333333334"))


def test_a_threshold_is_believed_only_within_its_error() -> None:
    # 0.1000… in binary looks like the threshold until 60 decimals are known
    uniform = UniformReal(0b1000, 4, replay(b"\x00" * 32))
    assert uniform.is_below(lambda context: context.add(Decimal("0.5"), Decimal("1e-60")))


def test_exponential_to_68_digits() -> None:
    known = "0.36787944117144232159552377016146086744581113103176783450783680169746"
    assert str(exponential(Fraction(-1), Context(prec=68))) == known


def low_digits(rate: Fraction) -> list[Decimal]:
    """P(z) for z = -128 … 127 of the sign and the seven lowest digits, each digit by itself."""
    with localcontext(PRECISE):
        q = exponential(-rate, PRECISE)
        digit = [1 / (1 + 1 / q ** (2**i)) for i in range(7)]
        magnitude = [Decimal(1)] * 128
        for value in range(128):
            for i, one in enumerate(digit):
                magnitude[value] *= one if value >> i & 1 else 1 - one
        negative = q / (1 + q)
        return [negative * p for p in reversed(magnitude)] + [(1 - negative) * p for p in magnitude]


RATES = [Fraction(3), Fraction(1, 7), Fraction(4, 10) / 2048, Fraction(1, 10**12)]


def tables(rate: Fraction) -> tuple[Inversion, ...]:
    groups = laplace._groups(rate)
    return groups.low, *groups.middle, groups.high


@pytest.mark.parametrize("rate", RATES)
def test_a_group_is_the_product_of_its_independent_digits(rate: Fraction) -> None:
    table = laplace._groups(rate).low
    with localcontext(PRECISE):
        sums = list(accumulate(low_digits(rate)))[:-1]
        for i, (true, approximate) in enumerate(zip(sums, table.cumulative, strict=True), start=1):
            assert abs(table.exact(i, PRECISE) - true) < Decimal("1e-35")
            assert abs(approximate - float(true)) < table.margin / 16


@pytest.mark.parametrize("rate", RATES)
def test_thresholds_are_met_to_the_last_of_64_bits(rate: Fraction) -> None:
    for table in tables(rate):
        exact = [int(Fraction(table.exact(j, PRECISE)) * 2**64) for j in range(1, 256)]
        exact = [min(threshold, 2**64 - 1) for threshold in exact]  # 1 - 1e-166 has become 1
        for i in (1, 2, 100, 128, 129, 255):
            for bits in (exact[i - 1] - 3, exact[i - 1] - 1, exact[i - 1] + 1, exact[i - 1] + 3):
                if 0 <= bits < 2**64 and bits not in exact:
                    drawn = table.draw(1, replay(bytes_of(bits)))
                    assert drawn[0] == sum(threshold < bits for threshold in exact)


@pytest.mark.parametrize("rate", RATES)
def test_table_and_decimals_give_the_same_numbers(rate: Fraction) -> None:
    for table in tables(rate):
        doubtful = Inversion(cumulative=table.cumulative, exact=table.exact, margin=2.0**-17)
        near = np.flatnonzero(doubtful._by_first_bits < 0)[::31]
        further = stream(1, NOISE).bytes(14 * near.size)
        for row, first in enumerate(near.tolist()):
            given = first.to_bytes(2, "little") + further[14 * row : 14 * row + 14]
            assert table.draw(1, replay(given)) == doubtful.draw(1, replay(given))


def test_table_marks_every_bucket_that_holds_a_threshold() -> None:
    thresholds = np.array([0.25, 0.25 + 2**-17, 0.5, 1 - 2**-60])
    table = Inversion(cumulative=thresholds, exact=lambda i, c: Decimal(thresholds[i - 1]))
    values = table._by_first_bits
    undecided = np.flatnonzero(values < 0).tolist()
    # a threshold on the edge of two buckets marks both
    assert undecided == [2**14 - 1, 2**14, 2**15 - 1, 2**15, 2**16 - 1]
    gaps = pairwise([-1, *undecided, 2**16])
    for (start, end), value in zip(gaps, (0, 0, 2, 0, 3, 4), strict=True):
        if end - start > 1:
            assert (values[start + 1 : end] == value).all()


def test_inversion_draws_the_given_law() -> None:
    probabilities = np.array([0.2, 1e-4, 0.3, 0.4999])
    sums = np.cumsum(probabilities)[:-1]
    table = Inversion(cumulative=sums, exact=partial(_listed, sums.tolist()))
    drawn = table.draw(10**6, seeded_bytes(stream(2, NOISE)))
    counts = np.bincount(drawn, minlength=4)
    assert stats.chisquare(counts, 10**6 * probabilities).pvalue > SIGNIFICANCE


def _listed(sums: list[float], index: int, context: Context) -> Decimal:
    return Decimal(sums[index - 1])
