"""Whole numbers from products of numbers that are not."""

import math


def ceil_of(count: float) -> int:
    """``ceil``, but for rounding errors: a billionth above a whole number is that number.

    Example:
        >>> ceil_of(0.07 * 100), ceil_of(6.001)  # 0.07 * 100 is 7.000000000000001
        (7, 7)
    """
    return math.ceil(round(count, 9))
