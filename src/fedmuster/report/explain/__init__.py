"""Why a client was or was not chosen, term by term.

``sources`` finds out what the policy saw (``moment``); ``rules`` says how it chooses, each kind of
rule in a file of its own; ``explanation`` puts that into sentences and tables.
"""

from fedmuster.report.explain.explanation import Explanation, explain
from fedmuster.report.explain.moment import Moment
from fedmuster.report.explain.sources import (
    can_be_replayed,
    find_run,
    from_journal,
    from_replay,
    suffices,
)

__all__ = [
    "Explanation",
    "Moment",
    "can_be_replayed",
    "explain",
    "find_run",
    "from_journal",
    "from_replay",
    "suffices",
]
