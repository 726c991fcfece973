"""Which clients at which edge server, within the edges' budgets (COCS, P2 and P3).

Read ``problem`` first; then ``offers``, the form that solvers want, and ``prices`` of budgets,
which prove a bound; ``knapsacks``, branch and bound over what prices leave open; the solvers
``lagrangian`` (the default), ``exact`` (HiGHS) and ``fl_greedy`` (COCS); and ``placing``, what
policies do with them.
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
