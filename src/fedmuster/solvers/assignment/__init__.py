"""Which clients at which edge server, within the edges' budgets (COCS, P2 and P3).

Read in this order:

1. ``problem``: the problem, and what an answer is; ``offers``: the same as solvers want it.
2. ``filling``: the greedy step; ``incumbent``: the best placement and the lowest bound so far.
3. ``no_budgets``: the easy case, a top-k.
4. ``prices`` of budgets prove a bound; ``start`` is so far; ``branch_and_bound`` finishes what they
   leave open, level by level (``search_levels``).
5. ``knapsacks``: each edge for itself; with them ``bidding``, where edges outbid each other, lowers
   the bound, and ``local_search`` improves a placement.
6. The solvers made of these: ``lagrangian`` (the default), ``exact`` (HiGHS), ``fl_greedy`` (COCS);
   ``solver`` is any of them.
7. What policies do with a solver: ``placement`` (the best), ``exploration`` (COCS), ``in_turns``
   (lifted policies); or without one: ``in_order``.
"""

from fedmuster.solvers.assignment.exact import ExactAssignment
from fedmuster.solvers.assignment.filling import all_pairs, first_come
from fedmuster.solvers.assignment.fl_greedy import FLGreedy
from fedmuster.solvers.assignment.lagrangian import LagrangianAssignment
from fedmuster.solvers.assignment.placing import (
    AssignmentSolver,
    best_placement,
    explore,
    fill_in_turns,
)
from fedmuster.solvers.assignment.problem import AssignmentProblem, Placement

__all__ = [
    "AssignmentProblem",
    "AssignmentSolver",
    "ExactAssignment",
    "FLGreedy",
    "LagrangianAssignment",
    "Placement",
    "all_pairs",
    "best_placement",
    "explore",
    "fill_in_turns",
    "first_come",
]
