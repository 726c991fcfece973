"""Any of the solvers, as policies are configured with one."""

from fedmuster.solvers.assignment.exact import ExactAssignment
from fedmuster.solvers.assignment.fl_greedy import FLGreedy
from fedmuster.solvers.assignment.lagrangian import LagrangianAssignment

AssignmentSolver = ExactAssignment | LagrangianAssignment | FLGreedy
