"""How numbers and cells of tables are written for people."""

import math
from typing import Final, TypeVar

T = TypeVar("T")

_NOTHING = 1e-12
"""Below this a number is a rounding error, or the tiniest one that keeps a quotient defined."""
_MOST_DECIMALS = 6
"""After the point: a regret of 1e-17 is a rounding error, and is shown as 0."""


def number(value: float) -> str:
    """Short, and exact if it is whole; – for nothing.

    Example:
        >>> number(3.0), number(0.123456), number(float("nan")), number(float("inf"))
        ('3', '0.1235', '–', '∞')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) < _NOTHING:
        return "0"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}"


def plain(value: float) -> str:
    """Thousands separators, a minus sign, and no more digits than needed, at most ten.

    Example:
        >>> plain(12345.5), plain(-0.1)
        ('12,345.5', '−0.1')
    """
    return f"{value:,.10g}".replace("-", "−")


def percent(share: float, digits: int | None = None) -> str:
    """A share as a percentage, with ``digits`` after the point, else two digits below 10 %.

    Example:
        >>> percent(0.25), percent(0.0123), percent(0.975, 2)
        ('25 %', '1.2 %', '97.50 %')
    """
    if digits is None and share < 0.1:
        return f"{100 * share:.2g} %"
    return f"{100 * share:.{digits or 0}f} %"


def span(low: int, high: int) -> str:
    """A range of whole numbers.

    Example:
        >>> span(3, 1200), span(3, 3)
        ('3–1,200', '3')
    """
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def plus_minus(mean: float, half_width: float, *, sign: str = "") -> str:
    """An interval, to two significant digits of the half-width, but at most five of the mean.

    ``half_width`` is NaN for a mean of one value; ``sign="+"`` writes the sign of every mean.

    Example:
        >>> plus_minus(1234.567, 89.1), plus_minus(0.5, float("nan"), sign="+")
        ('1,235 ± 89', '+0.50000')
    """
    if math.isnan(mean):
        return "–"
    last = _magnitude(mean) - 4
    if half_width > 0:  # not for NaN
        last = max(last, _magnitude(half_width) - 1)
    digits = min(max(-last, 0), _MOST_DECIMALS)
    text = _fixed(mean, digits, sign)
    return text if math.isnan(half_width) else f"{text} ± {_fixed(half_width, digits)}"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def _fixed(value: float, digits: int, sign: str = "") -> str:
    text = f"{value:{sign},.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.,") else "0"


def ordinal(position: int) -> str:
    """1st, 2nd, 3rd, …

    Example:
        >>> [ordinal(n) for n in (1, 2, 11, 23)]
        ['1st', '2nd', '11th', '23rd']
    """
    last = {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
    return f"{position:,}{'th' if position % 100 in (11, 12, 13) else last}"


_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def harmless_cell(value: T) -> T | str:
    """A cell of a CSV file that no spreadsheet takes for a formula; numbers stay as they are.

    Example:
        >>> harmless_cell("=1+1"), harmless_cell("bsfl"), harmless_cell(-1.5)
        ("'=1+1", 'bsfl', -1.5)
    """
    dangerous = isinstance(value, str) and value.startswith(_FORMULA_STARTS)
    return f"'{value}" if dangerous else value


def several(count: int, what: str, plural: str = "") -> str:
    """A number of things; the plural has an s unless ``plural`` is given.

    Example:
        >>> several(1, "client"), several(1200, "client"), several(3, "policy", "policies")
        ('1 client', '1,200 clients', '3 policies')
    """
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def capital(sentence: str) -> str:
    """With a capital letter first."""
    return sentence[:1].upper() + sentence[1:]
