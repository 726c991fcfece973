"""How a client trains: mini-batch SGD on its own data."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """The same learning rate in every round."""

    name: ClassVar[str] = "constant"

    def factor(self, _round_number: int) -> float:
        """By which the learning rate of this round is multiplied."""
        return 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDecay:
    """The learning rate falls by ``gamma`` after every ``every`` rounds (PyTorch's StepLR)."""

    name: ClassVar[str] = "step"

    every: int = 100
    gamma: float = 0.5

    def __post_init__(self) -> None:
        check_types(self)
        require(self.every >= 1, self, "every", "an integer >= 1")
        require(0 < self.gamma <= 1, self, "gamma", "a number in (0, 1]")

    def factor(self, round_number: int) -> float:
        """By which the learning rate of this round is multiplied."""
        return float(self.gamma ** ((round_number - 1) // self.every))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosine:
    """From 1 down to ``floor`` along half a cosine over ``rounds`` rounds, then constant."""

    name: ClassVar[str] = "cosine"

    rounds: int = 1000
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        require(self.rounds >= 1, self, "rounds", "an integer >= 1")
        require(0 <= self.floor <= 1, self, "floor", "a number in [0, 1]")

    def factor(self, round_number: int) -> float:
        """By which the learning rate of this round is multiplied."""
        progress = min((round_number - 1) / self.rounds, 1.0)
        return self.floor + (1.0 - self.floor) * (1.0 + math.cos(math.pi * progress)) / 2.0


Schedule = Constant | StepDecay | Cosine


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalSGD:
    """Local SGD from the global model, with PyTorch's update rule.

    ``g = gradient + weight_decay w + proximal (w - w_global); v = momentum v + g; w -= lr v``;
    the velocity v starts from 0 in every round. An epoch is a fresh permutation of the client's
    samples, cut into batches; the last may be smaller, and every batch counts its mean loss.

    Args:
        learning_rate: of the first round.
        schedule: how it changes from round to round.
        batch_size: 0 for full batches.
        epochs: over the client's data; give this or ``steps``, or neither for one epoch.
        steps: batches instead, going on with further epochs as needed: equal work for all.
        momentum: in [0, 1).
        weight_decay: L2.
        proximal: FedProx's mu.
        measure_gain: whether to measure each client's loss and accuracy before and after.
    """

    learning_rate: float = 0.1
    schedule: Schedule = field(default_factory=Constant)
    batch_size: int = 20
    epochs: int | None = None
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    measure_gain: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.learning_rate < math.inf, self, "learning_rate", "a number > 0")
        require(self.batch_size >= 0, self, "batch_size", "an integer >= 0")
        for name in ("epochs", "steps"):
            value = getattr(self, name)
            require(value is None or value >= 1, self, name, "an integer >= 1")
        if self.epochs is not None and self.steps is not None:
            raise ConfigError("LocalSGD: give epochs or steps, not both", key=("steps",))
        require(0 <= self.momentum < 1, self, "momentum", "a number in [0, 1)")
        for name in ("weight_decay", "proximal"):
            require(0 <= getattr(self, name) < math.inf, self, name, "a number >= 0")

    def rate(self, round_number: int) -> float:
        """The learning rate of a round."""
        return self.learning_rate * self.schedule.factor(round_number)
