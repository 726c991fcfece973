"""How numbers are written for people."""

import math

_NOTHING = 1e-12
"""Below this a number is a rounding error, or the tiniest one that keeps a quotient defined."""


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


def percent(share: float) -> str:
    """Of a chance.

    Example:
        >>> percent(0.25), percent(0.0123)
        ('25 %', '1.2 %')
    """
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def ordinal(position: int) -> str:
    """1st, 2nd, 3rd, …

    Example:
        >>> [ordinal(n) for n in (1, 2, 11, 23)]
        ['1st', '2nd', '11th', '23rd']
    """
    last = {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
    return f"{position:,}{'th' if position % 100 in (11, 12, 13) else last}"


def several(count: int, what: str) -> str:
    """With a plural s.

    Example:
        >>> several(1, "client"), several(1200, "client")
        ('1 client', '1,200 clients')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def capital(sentence: str) -> str:
    """With a capital letter first."""
    return sentence[:1].upper() + sentence[1:]
