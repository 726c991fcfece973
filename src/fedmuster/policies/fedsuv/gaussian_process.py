"""A Gaussian process over clients: predicts utility from clients with similar attributes."""

import math
from dataclasses import dataclass

import numpy as np

from fedmuster.bandits.linear import standardised
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.state import derived, given
from fedmuster.policies.fedsuv.kernel import Family, Hyperparameters, Kernel, Sample, fitted
from fedmuster.policies.fedsuv.posterior import (
    Belief,
    Evidence,
    ExactBelief,
    FeatureBelief,
    NoBelief,
)


@dataclass(slots=True)
class Tally:
    """How often each client was observed, their mean, and the squared deviations from it."""

    count: IntArray
    mean: FloatArray
    spread: FloatArray

    @classmethod
    def init(cls, num_clients: int) -> "Tally":
        """No client observed yet."""
        return cls(
            count=np.zeros(num_clients, dtype=np.int64),
            mean=np.zeros(num_clients),
            spread=np.zeros(num_clients),
        )

    def of(self, clients: IntArray) -> "Tally":
        """A copy of the rows of ``clients``."""
        return Tally(self.count[clients], self.mean[clients], self.spread[clients])

    def add(self, clients: IntArray, values: FloatArray) -> None:
        """One new value for each of ``clients`` (distinct), by Welford's recursion."""
        self.count[clients] += 1
        away = values - self.mean[clients]
        self.mean[clients] += away / self.count[clients]
        self.spread[clients] += away * (values - self.mean[clients])

    def location_and_scale(self) -> tuple[float, float]:
        """Mean and standard deviation of all observations, of which there must be one.

        Where all of them are equal, their size is the only scale that there is.
        """
        seen = self.of(np.flatnonzero(self.count))
        total = seen.count.sum()
        location = float(seen.count @ seen.mean / total)
        squares = seen.spread.sum() + seen.count @ (seen.mean - location) ** 2
        scale = float(np.sqrt(squares / total))
        if scale > 1e-12 * abs(location):
            return location, scale
        return location, abs(location) or 1.0

    def sample(
        self, attributes: FloatArray, location: float, scale: float, *, at_most: int
    ) -> Sample:
        """Observed clients, evenly spaced if there are more than ``at_most``; standardised."""
        seen = np.flatnonzero(self.count)
        if len(seen) > at_most:
            seen = seen[np.arange(at_most) * len(seen) // at_most]
        tally = self.of(seen)
        return Sample(
            attributes=attributes[seen],
            count=tally.count,
            mean=(tally.mean - location) / scale,
            spread=tally.spread / scale**2,
        )


@dataclass(slots=True)
class GPState:
    """What was observed of each client, and what is concluded from all of it together.

    ``included`` and ``fitted`` say how many observations the belief and the hyper-parameters
    stand for; fewer than there are, and they must be computed again.
    """

    tally: Tally
    hyper: Hyperparameters
    belief: Belief
    attributes: FloatArray = given()
    included: IntArray = derived()
    fitted: IntArray = derived()


@dataclass(frozen=True, kw_only=True, slots=True)
class GaussianProcess:
    """Posterior mean and standard deviation of every client's utility (FedSUV Eq. 5).

    Utilities are ``g(x) + e + noise``: g a Gaussian process over the standardised attributes x, e
    a part of the client's own (if ``individual``), noise new with every observation. A client's
    observations act as one of their mean, so nothing grows with their number; a round costs K^2
    times the clients observed for the exact posterior, K times num_features times those for the
    approximate one. Without attributes every client is an arm of its own.

    Hyper-parameters, and the offset and scale that standardise the values, are fitted by marginal
    likelihood whenever the observations have grown by ``refit_growth`` since the last time, and
    after clients have joined.

    Args:
        exact_up_to: with more clients than this, g is approximated by random Fourier features.
        num_features: how many of them; the error of the kernel falls with its square root.
        feature_seed: which ones are drawn.
        kernel: how smooth g is.
        individual: whether a client may differ from others of the same attributes.
        fit: whether hyper-parameters are fitted; otherwise they stay as the next three say, in
            the units of the values.
        length_scale: usual length-scale, in standard deviations of an attribute times sqrt(d).
        signal: usual variance of g.
        noise: usual variance of the noise.
        noise_floor: least variance of the noise, relative to the variance of the values.
        refit_growth: factor by which the observations grow from one fit to the next.
        fit_clients: at most how many of the observed clients a fit looks at.

    Example:
        >>> process = GaussianProcess(fit=False, noise=0.01)
        >>> state = process.init(3, np.array([[0.0], [0.1], [5.0]]))
        >>> process.observe(state, np.array([0]), np.array([2.0]))
        >>> mean, deviation = process.posterior(state)
        >>> mean.round(2), deviation.round(2)
        (array([1.98, 1.98, 0.2 ]), array([0.1 , 0.11, 0.99]))
    """

    exact_up_to: int = 4000
    num_features: int = 256
    feature_seed: int = 0
    kernel: Family = "squared-exponential"
    individual: bool = False
    fit: bool = True
    length_scale: float = 1.0
    signal: float = 1.0
    noise: float = 0.1
    noise_floor: float = 1e-4
    refit_growth: float = 2.0
    fit_clients: int = 256

    def __post_init__(self) -> None:
        check_types(self)
        require(self.exact_up_to >= 0, self, "exact_up_to", "an integer >= 0")
        even = self.num_features >= 2 and self.num_features % 2 == 0
        require(even, self, "num_features", "an even integer >= 2")
        require(self.feature_seed >= 0, self, "feature_seed", "an integer >= 0")
        require(0 < self.noise_floor < 1, self, "noise_floor", "a number in (0, 1)")
        for field in ("length_scale", "signal", "noise"):
            require(0 < getattr(self, field) < np.inf, self, field, "a number > 0")
        require(1 < self.refit_growth < np.inf, self, "refit_growth", "a number > 1")
        require(self.fit_clients >= 1, self, "fit_clients", "an integer >= 1")

    def init(self, num_clients: int, attributes: FloatArray | None) -> GPState:
        """No client observed yet."""
        known = np.zeros((num_clients, 0)) if attributes is None else standardised(attributes)
        return GPState(
            tally=Tally.init(num_clients),
            hyper=self._usual(known.shape[1]),
            belief=self._blank(known),
            attributes=known,
            included=np.array(0),
            fitted=np.array(0),
        )

    def observe(self, state: GPState, clients: IntArray, values: FloatArray) -> None:
        """One new value for each of ``clients`` (distinct)."""
        if not len(clients):
            return
        order = np.argsort(clients)  # the order of rows must not change a single bit
        clients, values = clients[order], values[order]
        before, known = state.tally.of(clients), state.tally.count.sum()
        state.tally.add(clients, values)
        total = known + len(clients)
        if self.fit and total >= self.refit_growth * state.fitted:
            self._refit(state)
            state.fitted[...] = total
            self._rebuild(state, state.belief)
        elif 0 < known == state.included:
            evidence = _evidence(state, clients, before)
            state.belief.condition(self._kernel(state), state.attributes, evidence)
        else:
            self._rebuild(state, state.belief)
        state.included[...] = total

    def posterior(self, state: GPState) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation [K] of each client's utility, free of observation noise."""
        hyper, count = state.hyper, state.tally.count
        common, variance = self._common(state)
        # What lies between a client's own mean and g is shared out between e and the noise.
        gain = hyper.individual * count / (hyper.individual * count + hyper.noise)
        own = (state.tally.mean - hyper.offset) / hyper.scale
        mean = common + gain * (own - common)
        variance = (1.0 - gain) ** 2 * np.maximum(variance, 0.0) + (1.0 - gain) * hyper.individual
        return mean * hyper.scale + hyper.offset, np.sqrt(variance) * hyper.scale

    def _common(self, state: GPState) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and variance of g."""
        total = state.tally.count.sum()
        if not total:
            return np.array(0.0), state.hyper.signal
        belief = state.belief
        if state.included != total:  # clients have joined, and nothing was observed since
            belief = self._blank(state.attributes)
            self._rebuild(state, belief)
        return belief.mean, belief.variance

    def _usual(self, dimension: int) -> Hyperparameters:
        length = self.length_scale * math.sqrt(dimension)
        individual = self.noise if self.individual else 0.0
        return Hyperparameters(
            length_scales=np.full(dimension, length),
            # Without attributes there is no g, and all that can be known is a client's own.
            signal=np.array(self.signal if dimension else 0.0),
            individual=np.array(individual if dimension else self.signal),
            noise=np.array(self.noise),
            offset=np.array(0.0),
            scale=np.array(1.0),
        )

    def _blank(self, attributes: FloatArray) -> Belief:
        count, dimension = attributes.shape
        if not dimension:
            return NoBelief.init()
        if count <= self.exact_up_to:
            return ExactBelief.init(count)
        return FeatureBelief.init(
            count,
            dimension,
            family=self.kernel,
            num_features=self.num_features,
            seed=self.feature_seed,
        )

    def _kernel(self, state: GPState) -> Kernel:
        return Kernel(self.kernel, state.hyper.length_scales, float(state.hyper.signal))

    def _rebuild(self, state: GPState, belief: Belief) -> None:
        """Conclude from the tally alone, as if all of it had been observed just now."""
        seen = np.flatnonzero(state.tally.count)
        evidence = _evidence(state, seen, Tally.init(len(seen)))
        belief.rebuild(self._kernel(state), state.attributes, evidence)

    def _refit(self, state: GPState) -> None:
        hyper = state.hyper
        location, scale = state.tally.location_and_scale()
        hyper.offset[...], hyper.scale[...] = location, scale
        sample = state.tally.sample(state.attributes, location, scale, at_most=self.fit_clients)
        hyper.set_logarithms(
            fitted(
                self.kernel,
                sample,
                usual=self._usual(state.attributes.shape[1]).logarithms(),
                current=hyper.logarithms(),
                noise_floor=self.noise_floor,
            )
        )


def _evidence(state: GPState, clients: IntArray, before: Tally) -> Evidence:
    """What the tally of ``clients`` tells of g, beyond what it told ``before``.

    The mean of n observations is one of g with the variance ``individual + noise / n``. With one
    more it becomes another one, and the difference of two such is again of that form.
    """
    hyper, now = state.hyper, state.tally.of(clients)
    old = before.count / (hyper.individual * before.count + hyper.noise)
    gained = now.count / (hyper.individual * now.count + hyper.noise) - old
    # Relative to the new mean: it changes by little, and little is lost to rounding.
    value = now.mean + old / gained * (now.mean - before.mean)
    return Evidence(clients, (value - hyper.offset) / hyper.scale, 1.0 / gained)
