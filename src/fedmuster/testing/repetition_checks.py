"""Points 3, 4, 5, 6, 8 and 10: runs repeat, nothing is borrowed, nothing else is changed."""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from copy import deepcopy
from dataclasses import asdict
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random.mtrand import get_bit_generator
from numpy.typing import NDArray

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import PolicyError
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.playing import (
    Image,
    continue_in,
    differing,
    feedback_rows,
    finish,
    image,
    play,
    play_round,
    same_selection,
    select_in,
    spelled,
    trained,
)
from fedmuster.testing.tiny_federation import Knowledge, lively

_TRAJECTORY_ROUNDS = 50
_HASH_SEEDS = ("20", "21")
_CHILD = "from fedmuster.testing.repetition_checks import answer; answer()"


class Trajectory(NamedTuple):
    """The cohorts of a run, spelled out, and a digest of the state at its end."""

    cohorts: list[str]
    digest: str


def trajectory(policy: Policy[Any], knowledge: Knowledge) -> Trajectory:
    """50 rounds in the lively federation."""
    federation = lively(knowledge)
    selector = Selector(policy, federation.problem(), seed=5)
    cohorts = continue_in(selector, federation, _TRAJECTORY_ROUNDS)
    digest = hashlib.sha256()
    for name, (dtype, shape, content) in sorted(image(selector.state).items()):
        digest.update(f"{name} {dtype} {shape} ".encode() + content)
    return Trajectory([spelled(cohort) for cohort in cohorts], digest.hexdigest())


def trajectory_elsewhere(policy: Policy[Any], knowledge: Knowledge) -> Trajectory:
    """The same in a process of its own, which rebuilds the policy from its table."""
    module, qualname = type(policy).__module__, type(policy).__qualname__
    if module == "__main__" or "<locals>" in qualname:
        raise PolicyError(
            f"a fresh process cannot import {qualname} from {module}: define the class at the top "
            "level of a module that is on sys.path, not in a script, notebook or function"
        )
    job = {
        "module": module,
        "qualname": qualname,
        "table": to_table(policy),
        "knowledge": asdict(knowledge),
    }
    here = os.environ.get("PYTHONHASHSEED")
    elsewhere = next(seed for seed in _HASH_SEEDS if seed != here)
    environment = {
        **os.environ,
        "PYTHONHASHSEED": elsewhere,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    child = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=json.dumps(job),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        reason = child.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise PolicyError(
            f"a fresh process could not play {qualname} of {module} ({reason[0]}): the class must "
            "be importable from a module on sys.path, and built from its TOML table alone"
        )
    cohorts, digest = json.loads(child.stdout.splitlines()[-1])  # an import may print, too
    return Trajectory(cohorts, digest)


def answer() -> None:
    """What the fresh process runs: a job on stdin, its trajectory on stdout."""
    job = json.load(sys.stdin)
    kind = attrgetter(job["qualname"])(import_module(job["module"]))
    policy = named({kind.name: kind}, job["table"], key=(), what="policy")
    played = trajectory(policy, Knowledge(**job["knowledge"]))
    sys.stdout.write("\n" + json.dumps(played) + "\n")


_ROUNDS = 20
_HISTORIES = (0, _ROUNDS)
_MUST_NOT_CHANGE = "select must change nothing: learn in observe"


def select_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 3: whether ``select`` changes anything, or does not repeat."""
    federation = lively(knowledge)
    for rounds in _HISTORIES:
        state = trained(policy, federation, rounds)
        view = federation.draw(rounds + 1).view(policy)
        before, seen = image(state), _view_arrays(view)
        saved = [array.copy() for array in seen]
        first, *others = [
            policy.select(state, view, stream(0, POLICY, rounds + 1)) for _ in range(3)
        ]
        changed = differing(before, image(state))
        if changed:
            return f"select changed the state's {', '.join(changed)}; {_MUST_NOT_CHANGE}"
        if not all(map(np.array_equal, seen, saved)):
            return f"select wrote into the view's arrays; {_MUST_NOT_CHANGE}"
        if not all(same_selection(first, other) for other in others):
            return (
                "three calls of select with equal state, view and rng chose differently; it may "
                "draw from the rng it is given and from nothing else"
            )
    return None


def _view_arrays(view: RoundView) -> list[NDArray[Any]]:
    arrays: list[NDArray[Any]] = [view.available]
    if view.features is not None:
        arrays.append(view.features)
    if view.edges is not None:
        arrays += [view.edges.coverage, view.edges.cost, view.edges.budget]
    if view.truth is not None:
        truth = view.truth
        told = (truth.mean_latency_seconds, truth.mean_speed, truth.success, truth.succeeds)
        arrays += [array for array in told if array is not None]
    return arrays


def borrowing_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 4: whether the state changes when the arrays that observe was given do."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    for t in range(1, _ROUNDS + 1):
        _, selection, feedback = play_round(policy, state, federation.draw(t))
        before = image(state)
        for array in _lent(selection, feedback):
            array[...] = array == 0  # another value, whatever the type
        changed = differing(before, image(state))
        if changed:
            return (
                f"the state's {', '.join(changed)} changed when the caller wrote into the arrays "
                "it had passed to observe; observe must copy what it keeps"
            )
    return None


def _lent(selection: Selection, feedback: Feedback) -> list[NDArray[Any]]:
    """The arrays that observe was given."""
    chosen = (selection.clients, selection.edges, selection.inclusion, selection.features)
    heard = (feedback.clients, feedback.latency_seconds, feedback.completed)
    columns = (*chosen, *heard, *feedback.signals.values())
    return [column for column in columns if column is not None]


def global_rng_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 6: whether the global generators matter to the policy, or are disturbed by it."""
    numpys = get_bit_generator()
    saved = random.getstate(), numpys.state
    outcomes: list[tuple[list[str], Image]] = []
    try:
        for seed in (1, 2):
            random.seed(seed)
            numpys.state = type(numpys)(seed).state
            federation = lively(knowledge)
            state = policy.init(federation.problem())
            turns = play(policy, state, federation, range(1, _ROUNDS + 1))
            outcomes.append(([spelled(turn.selection) for turn in turns], image(state)))
            if random.random() != random.Random(seed).random():
                return "it disturbed Python's global random generator; use the rng it is given"
            if numpys.random_raw() != type(numpys)(seed).random_raw():
                return "it disturbed numpy's global random generator; use the rng it is given"
    finally:
        random.setstate(saved[0])
        numpys.state = saved[1]
    if outcomes[0] != outcomes[1]:
        return "seeding the global random generators changed what it did; use the rng it is given"
    return None


def row_order_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 10: whether the state depends on the order of the feedback's rows."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    for t in range(1, _ROUNDS + 1):
        draw = federation.draw(t)
        selection = policy.select(state, draw.view(policy), stream(0, POLICY, t))
        feedback = draw.feedback(selection)
        size = len(feedback.clients)
        order = np.arange(size)[::-1] if t % 2 else np.roll(np.arange(size), 1)
        twin = deepcopy(state)
        policy.observe(twin, selection, feedback_rows(feedback, order))
        policy.observe(state, selection, feedback)
        changed = differing(image(state), image(twin))
        if changed:
            return (
                f"the state's {', '.join(changed)} differ when the rows of the feedback come in "
                "another order; match rows by feedback.clients, and sort them before summing"
            )
    return None


_RESTARTS = 12
_ALL_IN_FIELDS = "all that it learns must be in arrays that are fields of its state"


def trajectory_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 5: whether 50 rounds repeat, here and in a fresh process with another hash seed."""
    first = trajectory(policy, knowledge)
    return _difference(first, trajectory(policy, knowledge), "a second run") or _difference(
        first,
        trajectory_elsewhere(policy, knowledge),
        "a run in a fresh process with another PYTHONHASHSEED (mind hash() and the order of sets)",
    )


def _difference(one: Trajectory, other: Trajectory, what: str) -> str | None:
    for t, (a, b) in enumerate(zip(one.cohorts, other.cohorts, strict=True), start=1):
        if a != b:
            return f"{what} chose {b} in round {t} instead of {a}; the same seed must give the same"
    if one.digest != other.digest:
        return f"{what} ended in another state; the same seed must give the same"
    return None


def restart_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 8: whether a run that is saved and restored all the time goes as one that is not."""
    federation = lively(knowledge)
    steady = Selector(policy, federation.problem(), seed=8)
    restarted = Selector(policy, federation.problem(), seed=8)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "selector.npz"
        for t in range(1, _RESTARTS + 1):
            draw = federation.draw(t)
            restarted = _restart(restarted, path)
            cohort, other = (select_in(selector, draw) for selector in (steady, restarted))
            if not same_selection(cohort, other):
                return (
                    f"saved and restored before round {t} it chose {spelled(other)} instead of "
                    f"{spelled(cohort)}; {_ALL_IN_FIELDS}"
                )
            restarted = _restart(restarted, path)
            for selector in (steady, restarted):
                finish(selector, draw)
            changed = differing(image(steady.state), image(restarted.state))
            if changed:
                return (
                    f"saved and restored in the open round {t} it learned another "
                    f"{', '.join(changed)}; {_ALL_IN_FIELDS}"
                )
    return None


def _restart(selector: Selector[Any], path: Path) -> Selector[Any]:
    selector.save(path)
    return Selector.restore(path, selector.policy)
