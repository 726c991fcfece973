"""Which clients at which edge server, within the edges' budgets (COCS, P2 and P3).

Read in this order:

1. ``problem``: the problem, what an answer is, and what a solver is; ``offers``: the problem as
   solvers want it, and the greedy step.
2. ``prices`` of budgets prove a bound, or solve the easy case without budgets; the incumbent is the
   best placement and the lowest bound so far.
3. ``knapsacks``: branch and bound over what prices leave open, and each edge for itself.
4. The solvers: ``lagrangian`` (the default), ``exact`` (HiGHS), ``fl_greedy`` (COCS).
5. ``placing``: what policies do with a solver (the best placement, COCS's exploration, lifted
   policies), or without one (a given order).
"""

from fedmuster.solvers.assignment.exact import ExactAssignment
from fedmuster.solvers.assignment.fl_greedy import FLGreedy
from fedmuster.solvers.assignment.lagrangian import LagrangianAssignment
from fedmuster.solvers.assignment.placing import (
    all_pairs,
    best_placement,
    explore,
    fill_in_turns,
    first_come,
)
from fedmuster.solvers.assignment.problem import (
    ASSIGNMENT_SOLVERS,
    AssignmentProblem,
    AssignmentSolver,
    Placement,
)

__all__ = [
    "ASSIGNMENT_SOLVERS",
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
