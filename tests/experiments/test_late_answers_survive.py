"""What a policy has yet to hear of late answers survives ``kill -9``, and is heard in a replay."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults import children
from tests.faults.children import Child
from tests.federation.listening import Listens

from fedmuster.core.selector import Selector
from fedmuster.experiments.journal import Journal, JournalReader, rounds_done
from fedmuster.experiments.replay import play_again
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Checkpoint

ROUNDS = 40


def experiment(**federation: Any) -> Experiment:
    """The policy asks clients in the order of the times that it has heard of, late ones too."""
    return Experiment.from_table(
        {
            "rounds": ROUNDS,
            "seeds": [3],
            "regret": False,
            "world": {
                "name": "latency",
                "num_clients": 12,
                "cohort_size": 5,
                "dropout": 0.2,
                "deadline_seconds": 6.0,
            },
            "training": {
                "data": {"name": "digits", "train_limit": 240, "test_limit": 40},
                "model": "logistic",
            },
            "federation": {"staleness": {"name": "polynomial", "max_age": 4}, **federation},
            "policy": [
                {"name": "tests.federation.listening:Listens", "label": "listens", "quota": 1}
            ],
        }
    )


def checkpoint_of(folder: Path) -> Checkpoint:
    with Journal(folder) as journal:
        found = journal.checkpoint()
    assert found is not None
    return found


@pytest.mark.parametrize("holds", [False, True])
def test_a_killed_run_ends_as_if_nobody_had_killed_it(tmp_path: Path, holds: bool) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        prepare(folder, experiment(late_hold_slots=holds))
    execute(whole)
    done = [0]
    for fault in (
        partial(children.die_after_commit, nth=4),
        partial(children.die_when_asking, nth=8),
        partial(children.die_when_asking, nth=1),
    ):
        assert Child(killed, fault).wait().code == -9
        done.append(rounds_done(killed))
        assert checkpoint_of(killed).loop is not None
    assert 0 < done[1] <= done[2] == done[3] < ROUNDS
    assert Child(killed).wait().code == 0
    assert JournalReader(killed).digest() == JournalReader(whole).digest()
    ends = [checkpoint_of(folder) for folder in (killed, whole)]
    assert ends[0] == ends[1]
    state = Selector.from_bytes(ends[0].selector, Listens(quota=1), source="here").state
    assert state.late.sum() > 0
    assert state.given_up.sum() > 0
    assert np.isfinite(state.loss).all()


def test_explain_plays_late_answers_again(tmp_path: Path) -> None:
    prepare(tmp_path, experiment())
    execute(tmp_path)
    again = play_again(tmp_path, ROUNDS)  # it compares all cohorts with the journal's
    assert again.same_model
