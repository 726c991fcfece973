"""Point 13: newcomers are explored."""

from typing import Any

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.selector import Selector
from fedmuster.testing.federation import Federation, Knowledge, varied_seconds
from fedmuster.testing.playing import continue_in, finish, select_in

RESIDENTS, NEWCOMERS = 12, 2
_SETTLED_AFTER = 30
PATIENCE = 60
"""Uniform choice of 3 out of 14 overlooks a client for so long with probability 5e-7."""


def newcomer_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 13: whether clients that join mid-run, the fastest of all, are ever tried."""
    seconds = np.append(varied_seconds(RESIDENTS), [0.03, 0.02])
    federation = Federation(mean_seconds=seconds, knowledge=knowledge)
    problem = federation.problem()
    before = Federation(mean_seconds=seconds[:RESIDENTS], knowledge=knowledge)
    selector = Selector(policy, before.problem(), seed=13)
    for t in range(1, _SETTLED_AFTER + 1):
        draw = federation.draw(t).of_first(RESIDENTS)
        select_in(selector, draw)
        finish(selector, draw)
    joined = selector.join(
        NEWCOMERS,
        num_samples=None if problem.num_samples is None else problem.num_samples[RESIDENTS:],
        quality=None if problem.quality is None else problem.quality[RESIDENTS:],
        clusters=None if problem.clusters is None else problem.clusters[RESIDENTS:],
        attributes=None if problem.attributes is None else problem.attributes[RESIDENTS:],
        expected_seconds=(
            None if problem.expected_seconds is None else problem.expected_seconds[RESIDENTS:]
        ),
    )
    newcomers = set(joined.tolist())
    for cohort in continue_in(selector, federation, PATIENCE):
        newcomers.difference_update(cohort.clients.tolist())
    if newcomers:
        return (
            f"clients {sorted(newcomers)} joined after round {_SETTLED_AFTER}, are the fastest of "
            f"all, and were not chosen once in {PATIENCE} rounds; treat the unseen as promising"
        )
    return None
