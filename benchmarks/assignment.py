"""Clients at edges within budgets (COCS P2): time, certified gap, and what others find.

    python -m benchmarks.assignment

Networks as the paper draws them: costs are a price of 0.5 to 2 times 2 to 4 MHz, values are uniform
in [0, 1]; each client is covered by one to four edges, or by all. Budgets are the paper's (3.5 and,
with 8 to 15 MHz, 40), or let a fifth of the clients be paid. "ones" are the exploration problems
(14), in which everybody is worth the same. The reference is the greedy choice by density; FLGreedy
and ``scipy.optimize.milp`` on the whole problem, as one would write it down, are measured in turns
with ours where they take less than a minute. ``gap`` is what the solver itself proves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.measure import in_turns, write
from fedmuster.core.records import IntArray
from fedmuster.core.streams import stream
from fedmuster.solvers.assignment import (
    AssignmentProblem,
    ExactAssignment,
    FLGreedy,
    LagrangianAssignment,
)

PAID = 0.2
MILP_SECONDS = 30.0
BARS = {(50, 3): (0.1, 1e-9), (5_000, 30): (0.5, 0.005), (50_000, 100): (2.0, 0.005)}
"""Seconds and gap that are not to be exceeded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """One kind of network; see the module."""

    clients: int
    edges: int
    budget: float | None = None
    megahertz: tuple[float, float] = (2.0, 4.0)
    total: bool = False
    ones: bool = False

    @property
    def title(self) -> str:
        budget = f"{PAID:.0%} paid" if self.budget is None else f"B = {self.budget:g}"
        return budget + ", all covered" * self.total + ", ones" * self.ones

    def draw(self, seed: int) -> AssignmentProblem:
        rng = stream(seed, "layout", self.clients, self.edges)
        covered_by = rng.integers(1, min(4, self.edges) + 1, self.clients)
        rank = rng.random((self.clients, self.edges)).argsort(axis=1)
        cost = rng.uniform(0.5, 2.0, self.clients) * rng.uniform(*self.megahertz, self.clients)
        budget = self.budget
        if budget is None:
            budget = PAID * float(cost.sum()) / self.edges
        reach = (rank < covered_by[:, np.newaxis]) | self.total
        who, where = np.nonzero(reach & (cost <= budget)[:, np.newaxis])
        return AssignmentProblem(
            clients=who,
            edges=where,
            value=np.ones(len(who)) if self.ones else rng.random(len(who)),
            cost=cost[who],
            budget=np.full(self.edges, budget),
            size=self.clients,
        )


NETWORKS = (
    Network(clients=50, edges=3, budget=3.5),
    Network(clients=50, edges=3, budget=3.5, total=True),
    Network(clients=50, edges=3, budget=40.0, megahertz=(8.0, 15.0)),
    Network(clients=50, edges=3, budget=40.0, megahertz=(8.0, 15.0), total=True),
    Network(clients=50, edges=3, budget=3.5, total=True, ones=True),
    Network(clients=50, edges=3),
    Network(clients=500, edges=10, budget=3.5),
    Network(clients=500, edges=10),
    Network(clients=5_000, edges=30, budget=3.5),
    Network(clients=5_000, edges=30),
    Network(clients=50_000, edges=100, budget=3.5),
    Network(clients=50_000, edges=100),
)


def greedy(problem: AssignmentProblem) -> IntArray:
    """The reference: the densest pair that fits, one after the other, in plain Python."""
    density = problem.value / np.maximum(problem.cost, 1e-12)
    left, taken, chosen = problem.budget.tolist(), set(), []
    clients, edges, cost = problem.clients.tolist(), problem.edges.tolist(), problem.cost.tolist()
    for pair in np.argsort(-density).tolist():
        if clients[pair] not in taken and cost[pair] <= left[edges[pair]]:
            taken.add(clients[pair])
            left[edges[pair]] -= cost[pair]
            chosen.append(pair)
    return np.array(chosen, dtype=np.int64)


def plain_milp(problem: AssignmentProblem) -> tuple[float, float]:
    """The whole problem, handed to HiGHS: what it finds in ``MILP_SECONDS``, and its bound."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array, vstack

    pairs = np.arange(len(problem.clients))
    once = coo_array((np.ones(len(pairs)), (problem.clients, pairs)))
    spent = coo_array((problem.cost, (problem.edges, pairs)))
    limits = np.concatenate((np.ones(once.shape[0]), problem.budget[: spent.shape[0]]))
    result: Any = milp(
        -problem.value,
        integrality=np.ones(len(pairs)),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(vstack((once, spent)).tocsr(), ub=limits),
        options={"mip_rel_gap": 0.0, "time_limit": MILP_SECONDS},
    )
    return -float(result.fun), -float(result.mip_dual_bound)


def main() -> None:
    """Print times, gaps and whether the bars are met."""
    print(
        f"{'network':<34}{'ms':>9}{'gap':>9}{'× greedy':>10}{'FLGreedy':>10}{'ms':>9}"
        f"{'exact ms':>10}{'milp ms':>10}  bar"
    )
    write("assignment", [_row(network) for network in NETWORKS])


def _row(network: Network) -> dict[str, Any]:
    problem = network.draw(0)
    contenders: dict[str, Callable[[], object]] = {
        "lagrangian": partial(LagrangianAssignment().solve, problem, stream(0, "benchmark")),
        "greedy": partial(greedy, problem),
    }
    small = network.clients <= 50
    if network.clients <= 5_000:
        contenders["fl-greedy"] = partial(FLGreedy().solve, problem, stream(0, "benchmark"))
    if small:
        contenders["exact"] = partial(ExactAssignment().solve, problem, stream(0, "benchmark"))
        contenders["milp"] = partial(plain_milp, problem)
    seconds = in_turns(contenders, turns=9 if small else 3)
    if network.clients == 500:
        start = perf_counter()
        found, bound = plain_milp(problem)
        seconds["milp"] = perf_counter() - start

    pairs, proved = LagrangianAssignment().solve(problem, stream(0, "benchmark"))
    total, gap = problem.total(pairs), proved / problem.total(pairs) - 1.0
    row: dict[str, Any] = {
        "clients": network.clients,
        "edges": network.edges,
        "pairs": len(problem.clients),
        "network": network.title,
        "seconds": seconds,
        "certified_gap": gap,
        "fits": problem.fits(pairs),
        "greedy_of_total": problem.total(greedy(problem)) / total,
        "times_greedy": seconds["lagrangian"] / seconds["greedy"],
        "fl_greedy_of_total": {
            utility: problem.total(FLGreedy(utility=utility).solve(problem, stream(0, "b")).pairs)
            / total
            for utility in ("linear", "square-root")
        },
    }
    row["never_worse_than_fl_greedy"] = max(row["fl_greedy_of_total"].values()) <= 1 + 1e-12
    if small:
        best = problem.total(ExactAssignment().solve(problem, stream(0, "benchmark")).pairs)
        row["of_exact"] = total / best
    if network.clients == 500:
        row["milp_of_total"], row["milp_gap"] = found / total, bound / found - 1.0
    bar = BARS.get((network.clients, network.edges))
    if bar is not None:
        row["bar_met"] = bool(seconds["lagrangian"] <= bar[0] and gap <= bar[1])
    _print(network, row)
    return row


def _print(network: Network, row: dict[str, Any]) -> None:
    seconds = row["seconds"]
    met = {None: "", True: "met", False: "MISSED"}[row.get("bar_met")]
    worse = "" if row["never_worse_than_fl_greedy"] else " WORSE THAN FLGREEDY"
    cells = "".join(
        f"{1e3 * seconds[what]:>{width}.1f}" if what in seconds else f"{'–':>{width}}"
        for what, width in (("fl-greedy", 9), ("exact", 10), ("milp", 10))
    )
    print(
        f"{f'{network.clients:,} × {network.edges}, {network.title}':<34}"
        f"{1e3 * seconds['lagrangian']:>9.1f}{row['certified_gap']:>9.3%}"
        f"{row['times_greedy']:>10.1f}{row['fl_greedy_of_total']['square-root']:>10.2%}{cells}"
        f"  {met}{worse}",
        flush=True,
    )


if __name__ == "__main__":
    main()
