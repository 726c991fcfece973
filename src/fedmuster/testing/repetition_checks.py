"""Points 3, 4, 5, 6, 8 and 10: runs repeat, nothing is borrowed, nothing else is changed."""

import atexit
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random.mtrand import get_bit_generator
from numpy.typing import NDArray

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import PolicyError
from fedmuster.core.policy import POLICIES, Policy
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
    vectors_of,
)
from fedmuster.testing.tiny_federation import Knowledge, lively

_TRAJECTORY_ROUNDS = 50
_HASH_SEEDS = ("20", "21")
_CHILD = "from fedmuster.testing.repetition_checks import serve; serve()"


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
        "path": [path for path in sys.path if path],
        "table": to_table(policy),
        "knowledge": asdict(knowledge),
    }
    reply = _Interpreter.of_process(os.getpid()).ask(job)
    if "error" in reply:
        raise PolicyError(
            f"a fresh process could not play {qualname} of {module} ({reply['error']}): the class "
            "must be importable from a module on sys.path, and built from its TOML table alone"
        )
    return Trajectory(reply["cohorts"], reply["digest"])


class _Interpreter:
    """An interpreter with another hash seed, which forks a fresh process for each job.

    It serves all policies that a test session checks: the imports of fedmuster take longer than
    the 50 rounds. It ends with the process that started it.
    """

    @staticmethod
    @cache
    def of_process(pid: int) -> "_Interpreter":
        """The one that this process asks; a fork of this process starts one of its own."""
        del pid
        return _Interpreter()

    def __init__(self) -> None:
        here = os.environ.get("PYTHONHASHSEED")
        environment = {
            **os.environ,
            "PYTHONHASHSEED": next(seed for seed in _HASH_SEEDS if seed != here),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self._process.communicate)  # closes its stdin, and waits

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": "it ended at once"}
        return reply


def serve() -> None:
    """What that interpreter runs: for each job, a line on stdin, a fork puts a line on stdout."""
    replies = os.dup(1)
    os.dup2(2, 1)  # what a policy prints is no reply
    for line in sys.stdin:
        fork = os.fork()
        if fork == 0:
            os.write(replies, (json.dumps(_reply(json.loads(line))) + "\n").encode())
            os._exit(0)
        _, status = os.waitpid(fork, 0)
        if status != 0:
            ending = {"error": f"it ended with status {os.waitstatus_to_exitcode(status)}"}
            os.write(replies, (json.dumps(ending) + "\n").encode())


def _reply(job: dict[str, Any]) -> dict[str, Any]:
    sys.path[:] = job["path"]
    try:
        policy = named(POLICIES, job["table"], key=(), what="policy")
        return trajectory(policy, Knowledge(**job["knowledge"]))._asdict()
    except BaseException as error:  # SystemExit, too
        return {"error": f"{type(error).__name__}: {error}"}


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
    told = (*feedback.signals.values(), *vectors_of(feedback).values())
    columns = (*chosen, selection.losses, *heard, *told)
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
        feedback = draw.feedback(selection, policy)
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
