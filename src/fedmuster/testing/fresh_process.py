"""Replay a trajectory in a fresh Python process with another hash seed."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import PolicyError
from fedmuster.core.policy import Policy
from fedmuster.core.selector import Selector
from fedmuster.testing.federation import Knowledge, lively
from fedmuster.testing.playing import continue_in, image, spelled

_ROUNDS = 50
_HASH_SEEDS = ("20", "21")
_CHILD = "from fedmuster.testing.fresh_process import answer; answer()"


class Trajectory(NamedTuple):
    """The cohorts of a run, spelled out, and a digest of the state at its end."""

    cohorts: list[str]
    digest: str


def trajectory(policy: Policy[Any], knowledge: Knowledge) -> Trajectory:
    """50 rounds in the lively federation."""
    federation = lively(knowledge)
    selector = Selector(policy, federation.problem(), seed=5)
    cohorts = continue_in(selector, federation, _ROUNDS)
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
