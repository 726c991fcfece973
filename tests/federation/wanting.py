"""A policy that says how many answers it waits for, and for how long."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.policy import Stateless
from fedmuster.core.records import RoundView, Selection
from fedmuster.core.state import NoState


@dataclass(frozen=True, kw_only=True, slots=True)
class Wants(Stateless):
    """The first clients that are there, with a quota or a deadline of the policy's own."""

    name: ClassVar[str] = "wants"

    quota: int | None = None
    deadline_seconds: float | None = None

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        chosen = np.flatnonzero(view.available)[: view.num_to_choose]
        return Selection(
            round=view.round,
            clients=chosen,
            quota=self.quota,
            deadline_seconds=self.deadline_seconds,
        )
