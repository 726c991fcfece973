"""A policy of one's own, which TOML does not know, is lifted, saved and restored."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster import EdgeView, Lifted, Problem, RoundView, Selection, Selector
from fedmuster.core.errors import StateError
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback
from fedmuster.core.state import NoState


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstComeFirstServed(PolicyTraits):
    name: ClassVar[str] = "first-come"
    from_behind: bool = False

    def init(self, problem: Problem) -> NoState:
        return NoState()

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        able = np.flatnonzero(view.available)
        chosen = able[-view.num_to_choose :] if self.from_behind else able[: view.num_to_choose]
        return Selection(round=view.round, clients=chosen)

    def observe(self, state: NoState, selection: Selection, feedback: Feedback) -> None: ...


def test_it_is_restored_with_the_same_settings_only(tmp_path: Path) -> None:
    network = EdgeView(
        coverage=np.ones((6, 2), dtype=np.bool_), cost=np.ones(6), budget=np.array([1.0, 2.0])
    )
    selector = Selector(
        Lifted(policy=FirstComeFirstServed()), Problem(num_clients=6, cohort_size=6, num_edges=2)
    )
    chosen = selector.select(edges=network)
    assert chosen.clients.tolist() == [0, 1, 2]
    selector.save(tmp_path / "state.npz")
    restored = Selector.restore(tmp_path / "state.npz", Lifted(policy=FirstComeFirstServed()))
    assert restored.pending is not None
    np.testing.assert_array_equal(restored.pending.edges, chosen.edges)
    with pytest.raises(StateError):
        Selector.restore(
            tmp_path / "state.npz", Lifted(policy=FirstComeFirstServed(from_behind=True))
        )
