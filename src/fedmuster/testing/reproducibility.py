"""Points 5 and 8: a run repeats, in another process and after a restart."""

import tempfile
from pathlib import Path
from typing import Any

from fedmuster.core.policy import Policy
from fedmuster.core.selector import Selector
from fedmuster.testing.federation import Knowledge, lively
from fedmuster.testing.fresh_process import Trajectory, trajectory, trajectory_elsewhere
from fedmuster.testing.playing import (
    differing,
    finish,
    image,
    same_selection,
    select_in,
    spelled,
)

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
