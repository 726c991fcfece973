"""What a client's debits amount to: currencies, their sums, and conversions to (ε, δ).

The ledger adds up amounts of one currency, which is exact and always right. With a small δ the
same debits amount to less. That is worth printing; caps stay in the ledger's own currency.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.core.errors import ConfigError, MissingExtraError

Composition = Callable[[Sequence[float], float], float]
"""``(amounts, delta) -> ε``: what one client's debits amount to at δ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Currency:
    """What a ledger counts. The amounts of several releases add up to an amount of them all.

    The sum must be right for any number of releases, also where later ones depend on earlier ones:
    a mechanism with Gaussian differential privacy counts µ², which adds up, and not µ.

    Args:
        key: the currency's name in ledger files. A key means one thing for ever; a mechanism whose
            amounts compose in another way needs another key.
        symbol: ``ε`` for amounts that are an ε themselves, else the letter to print.
        measure: the notion of privacy that an amount is of; empty for pure ε.
        per_coordinate: True where an amount bounds each coordinate by itself, not the update.
        methods: by name, how one client's amounts become an ε at δ; the first is the default.
            Amounts that are an ε themselves also have ``basic``, their sum.

    Example:
        >>> count = Currency(key="mu-squared", symbol="µ²", measure="Gaussian DP")
        >>> count.title, count.is_epsilon
        ('µ² (Gaussian DP)', False)
    """

    key: str
    symbol: str
    measure: str = ""
    per_coordinate: bool = False
    methods: Mapping[str, Composition] = field(default_factory=dict)

    @property
    def is_epsilon(self) -> bool:
        """Whether an amount is an ε itself."""
        return self.symbol == "ε"

    @property
    def title(self) -> str:
        """For axes and columns: the symbol, what it is of, and whether it is per coordinate."""
        measure = f" ({self.measure})" if self.measure else ""
        return f"{self.symbol}{measure}{' per coordinate' if self.per_coordinate else ''}"

    @property
    def subject(self) -> str:
        """What an amount bounds."""
        return "each coordinate" if self.per_coordinate else "the update"

    def compose(
        self, amounts: Sequence[float], delta: float, method: str | None = None
    ) -> tuple[float, str]:
        """The ε at ``delta`` of one client's debits, and the name of the method that computed it.

        Raises:
            ConfigError: the currency has no such method, or δ is none.
        """
        known = {**self.methods, **({"basic": _added} if self.is_epsilon else {})}
        chosen = next(iter(known), "") if method is None else method
        if chosen not in known:
            raise ConfigError(
                f"{self.key}: no method {chosen!r} turns its amounts into an ε at δ; expected "
                f"one of: {', '.join(known) or 'nothing (its mechanism declares none)'}"
            )
        return known[chosen](amounts, _check_delta(delta)), chosen


def _added(amounts: Sequence[float], delta: float) -> float:
    return math.fsum(amounts)


Method = Literal["basic", "rdp", "pld"]

COARSEST_RATE: Final = 2.0**-10 * (1 + 2.0**-10)
"""What a step of the lattice costs at most: a noise scale is at least 2^10 steps, but for the
clip's rounding down to whole steps, by less than one in 2^10."""
_ORDERS: Final[FloatArray] = 1 + np.logspace(-3, 9, 4096)
"""Orders α of Rényi DP. Each of them gives a valid ε, so a finite choice of them is safe."""
_ZOOMS, _ZOOM = 3, 101

_PLD_INTERVAL: Final = 1e-3  # of the privacy loss; rounded so that the result is never too small


def tighter_epsilon(amounts: Sequence[float], delta: float, method: Method) -> float:
    """ε, at ``delta``, of Laplace releases that were debited with ``amounts`` of ε.

    Args:
        amounts: the debits of one client, each > 0.
        delta: δ of the (ε, δ) promise, in (0, 1).
        method: ``basic`` adds up and needs no δ; ``rdp`` composes Rényi DP; ``pld`` composes
            privacy-loss distributions, the tightest, by dp-accounting (the extra ``accounting``).

    The result is never more than the sum. A vector whose L1 norm is clipped is at worst as one
    coordinate that moves by all of it: for products of Laplace laws with shifts a and b,
    ``∫ min(p, e^(x+y) q) >= ∫ min(p_a, e^x q_a) ∫ min(p_b, e^y q_b) = e^((x+y-a-b)/2)``, which is
    what one law with the shift a + b has, for all x + y up to a + b.

    Example:
        >>> round(tighter_epsilon([0.1] * 100, 1e-6, "rdp"), 2)
        4.98
    """
    _check_delta(delta)
    if not all(0 < amount < math.inf for amount in amounts):
        raise ConfigError("tighter_epsilon: debits must be numbers > 0")
    basic = math.fsum(amounts)
    if method == "basic" or not amounts:
        return basic
    if method == "rdp":
        distinct, counts = np.unique(np.asarray(amounts, dtype=np.float64), return_counts=True)
        each = (n * laplace_rdp(e, _ORDERS) for e, n in zip(distinct, counts, strict=True))
        return min(basic, rdp_epsilon(_ORDERS, np.sum(list(each), axis=0), delta))
    if method == "pld":
        return min(basic, _pld_epsilon(amounts, delta))
    raise ConfigError(f"tighter_epsilon: method {method!r}, expected 'basic', 'rdp' or 'pld'")


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The ε with which ``rho``-zCDP is (ε, δ)-DP.

    By Canonne, Kamath and Steinke (2020), Proposition 12; never more than the simpler
    ``rho + 2 sqrt(rho ln(1/δ))`` of Bun and Steinke (2016), Proposition 1.3.
    """
    _check_delta(delta)
    if not 0 <= rho < math.inf:
        raise ConfigError(f"zcdp_epsilon: rho = {rho!r}, expected a number >= 0")
    return rdp_epsilon(_ORDERS, _ORDERS * rho, delta)  # α ρ by definition (Bun and Steinke 2016)


def gaussian_epsilon(rho: float, delta: float) -> float:
    """The ε at δ of Gaussian releases with ``rho`` together: the minimum over all orders.

    It is up to some 1e-5 of :func:`zcdp_epsilon` below that, by which caps were promised and which
    takes a fixed choice of orders.
    """
    least = zcdp_epsilon(rho, delta)
    orders = _ORDERS
    for _ in range(_ZOOMS):
        at = int(np.argmin(_epsilons(orders, orders * rho, delta)))  # α ρ, as above
        between = orders[max(at - 1, 0)], orders[min(at + 1, len(orders) - 1)]
        orders = np.linspace(*between, _ZOOM)
        least = min(least, rdp_epsilon(orders, orders * rho, delta))
    return least


def largest_rho(epsilon: float, delta: float) -> float:
    """The largest ρ, within one in 10^12, with which ρ-zCDP is still (ε, δ)-DP."""
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"largest_rho: epsilon = {epsilon!r}, expected a number > 0")
    log = math.log(1 / _check_delta(delta))
    low = epsilon**2 / (math.sqrt(log + epsilon) + math.sqrt(log)) ** 2  # Bun and Steinke's
    while zcdp_epsilon(2 * low, delta) <= epsilon:
        low *= 2
    high = 2 * low
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


def laplace_rdp(epsilon: float, order: FloatArray, *, rate: float = COARSEST_RATE) -> FloatArray:
    """Rényi DP of the discrete Laplace mechanism with ``epsilon``, of which a step costs ``rate``.

    ``ln(M) / (α - 1)`` with ``M = E_Q (P / Q)^α = a e^((α-1) ε) + (1 - a) e^(-α ε)``, two geometric
    series. As the rate tends to 0, a tends to the ``α / (2 α - 1)`` of the continuous law (Mironov
    2017, Table II); it grows with the rate. ``ln M`` is convex in ε and 0 at 0, so of a vector,
    too, the worst case is one coordinate that moves by all of the L1 sensitivity.
    """
    between = (2 * order - 1) * rate
    tail = np.expm1(-rate) / np.expm1(-between) * np.exp(-between)
    a = (1 + tail) / (1 + math.exp(-rate))
    log_moment = np.logaddexp(np.log(a) + (order - 1) * epsilon, np.log1p(-a) - order * epsilon)
    rdp: FloatArray = log_moment / (order - 1)
    return rdp


def rdp_epsilon(order: FloatArray, rdp: FloatArray, delta: float) -> float:
    """The smallest ε over the orders with which ``rdp`` is (ε, δ)-DP (zcdp_epsilon's reference)."""
    return max(0.0, float(_epsilons(order, rdp, delta).min()))


def _epsilons(order: FloatArray, rdp: FloatArray, delta: float) -> FloatArray:
    epsilons: FloatArray = rdp + np.log1p(-1 / order) - np.log(delta * order) / (order - 1)
    return epsilons


def _pld_epsilon(amounts: Sequence[float], delta: float) -> float:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise MissingExtraError(
            "dp-accounting", extra="accounting", purpose="composing privacy-loss distributions"
        ) from error
    steps = round(2 / COARSEST_RATE)
    total: Any = None
    for epsilon, count in zip(*np.unique(amounts, return_counts=True), strict=True):
        one = privacy_loss_distribution.from_discrete_laplace_mechanism(
            float(epsilon) / steps,
            steps,
            value_discretization_interval=_PLD_INTERVAL,
            use_connect_dots=True,
        ).self_compose(int(count))
        total = one if total is None else total.compose(one)
    return float(total.get_epsilon_for_delta(delta))


def _check_delta(delta: float) -> float:
    if not 0 < delta < 1:
        raise ConfigError(f"accounting: delta = {delta!r}, expected a number between 0 and 1")
    return delta
