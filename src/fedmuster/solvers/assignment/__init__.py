"""Which clients at which edge server, within the edges' budgets (COCS, P2 and P3)."""

from fedmuster.solvers.assignment.exact import ExactAssignment
from fedmuster.solvers.assignment.exploration import Exploration, explore
from fedmuster.solvers.assignment.fl_greedy import FLGreedy
from fedmuster.solvers.assignment.lagrangian import LagrangianAssignment
from fedmuster.solvers.assignment.problem import AssignmentProblem, Placement

AssignmentSolver = ExactAssignment | LagrangianAssignment | FLGreedy

__all__ = [
    "AssignmentProblem",
    "AssignmentSolver",
    "ExactAssignment",
    "Exploration",
    "FLGreedy",
    "LagrangianAssignment",
    "Placement",
    "explore",
]
