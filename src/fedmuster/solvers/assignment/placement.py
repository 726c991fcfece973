"""From values of pairs of client and edge to a Selection, by any of the assignment solvers."""

from numpy.random import Generator

from fedmuster.core.records import FloatArray, RoundView, Selection
from fedmuster.solvers.assignment.problem import AssignmentProblem
from fedmuster.solvers.assignment.solver import AssignmentSolver


def best_placement(
    view: RoundView, value: FloatArray, *, solver: AssignmentSolver, rng: Generator
) -> Selection:
    """The placement with the largest sum of ``value`` [K, M] that budgets pay for (COCS P2)."""
    problem = AssignmentProblem.of(view, value)
    pairs = solver.solve(problem, rng).pairs
    return Selection.at_edges(view, problem.clients[pairs], problem.edges[pairs])
