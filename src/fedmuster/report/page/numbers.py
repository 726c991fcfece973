"""Numbers as JSON has them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def rounded(values: NDArray[Any], digits: int = 5) -> list[float | None]:
    """To so many significant digits; None for what is not finite, which JSON cannot say.

    Example:
        >>> rounded(np.array([1234567.0, 0.1 + 0.2, np.nan]))
        [1234600.0, 0.3, None]
    """
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values.tolist()]
