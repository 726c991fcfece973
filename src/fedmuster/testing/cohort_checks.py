"""Points 2, 9, 11, 13 and 16: valid cohorts, fair ties, newcomers and silent clients."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.checking import cohort_fault
from fedmuster.core.edges import EdgeView
from fedmuster.core.policy import Policy
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, WORLD, stream
from fedmuster.testing.playing import continue_in, finish, join_rest, play_round, select_in
from fedmuster.testing.tiny_federation import (
    Draw,
    Knowledge,
    TinyFederation,
    lively,
    varied_seconds,
)

_ROUNDS = 40
_SIZES = ((1, 1), (1, 3), (5, 5), (6, 3))


def validity_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 2: whether cohorts are valid in a lively federation, with m changing by the round."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    for t in range(1, _ROUNDS + 1):
        # The cohort size of the view counts, not that of the problem.
        draw = replace(federation.draw(t), cohort_size=federation.cohort_size - 2 + t % 5)
        fault = _cohort_fault(policy, state, draw)
        if fault is not None:
            return f"in round {t} {fault}"
    return None


def _cohort_fault(policy: Policy[Any], state: Any, draw: Draw) -> str | None:
    """What is wrong with the policy's cohort; if nothing is, it learns what came back."""
    view = draw.view(policy)
    selection = policy.select(state, view, stream(0, POLICY, draw.round))
    fault = cohort_fault(policy, view, selection)
    if fault is None:
        policy.observe(state, selection, draw.feedback(selection, policy))
    return fault


def scarcity_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 11: whether it copes with few clients, few available, and nobody who can be paid."""
    for federation in _small_federations(knowledge):
        state = policy.init(federation.problem())
        num_clients, cohort_size = len(federation.mean_seconds), federation.cohort_size
        scarce = (num_clients, 0, 1, cohort_size - 1, num_clients)
        for t in range(1, _ROUNDS + 1):
            count = min(scarce[t % len(scarce)], num_clients)
            draw = federation.draw(t)
            need, edges = _in_need(draw.edges, t)
            available = np.roll(np.arange(num_clients) < count, t)
            if edges is not None:
                available &= edges.covered
            draw = replace(draw, available=available, edges=edges)
            where = f"with K = {num_clients}, m = {cohort_size}, {count} clients available{need}"
            try:
                fault = _cohort_fault(policy, state, draw)
            except Exception as error:
                return f"{where} it raised {type(error).__name__}: {error}; it must cope"
            if fault is not None:
                return f"{where} {fault}"
    return None


def _small_federations(knowledge: Knowledge) -> Iterator[TinyFederation]:
    # One edge server with a budget is no flat federation.
    edge_counts = sorted({min(knowledge.num_edges, 1), knowledge.num_edges})
    for num_clients, cohort_size in _SIZES:
        for num_edges in edge_counts:
            yield TinyFederation(
                mean_seconds=varied_seconds(num_clients),
                cohort_size=cohort_size,
                knowledge=replace(knowledge, num_edges=num_edges),
            )


def _in_need(edges: EdgeView | None, round_: int) -> tuple[str, EdgeView | None]:
    """The edge servers in one of the kinds of need and of plenty, and which it is."""
    if edges is None:
        return "", None
    nobody, nothing = np.zeros_like(edges.coverage), np.zeros_like(edges.budget)
    almost = np.full_like(edges.budget, np.nextafter(edges.cost.min(), 0.0))
    what, changed = (
        ("", edges),
        (" that cover nobody", replace(edges, coverage=nobody)),
        (" that cover everybody", replace(edges, coverage=~nobody)),
        (" without budgets", replace(edges, budget=nothing)),
        (
            " without budgets or costs",
            replace(edges, budget=nothing, cost=np.zeros_like(edges.cost)),
        ),
        (" that can almost pay for one client", replace(edges, budget=almost)),
        (" with infinite budgets", replace(edges, budget=nothing + np.inf)),
    )[round_ % 7]
    return f", {edges.num_edges} edge servers{what}:", changed


RESIDENTS, NEWCOMERS = 12, 2
_SETTLED_AFTER = 30
PATIENCE = 60
"""Uniform choice of 3 out of 14 overlooks a client for so long with probability 5e-7."""


def newcomer_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 13: whether clients that join mid-run, the fastest of all, are ever tried."""
    seconds = np.append(varied_seconds(RESIDENTS), [0.03, 0.02])
    federation = TinyFederation(mean_seconds=seconds, knowledge=knowledge)
    before = TinyFederation(mean_seconds=seconds[:RESIDENTS], knowledge=knowledge)
    selector = Selector(policy, before.problem(), seed=13)
    for t in range(1, _SETTLED_AFTER + 1):
        draw = federation.draw(t).of_first(RESIDENTS)
        select_in(selector, draw)
        finish(selector, draw)
    newcomers = set(join_rest(selector, federation.problem()).tolist())
    for cohort in continue_in(selector, federation, PATIENCE):
        newcomers.difference_update(cohort.clients.tolist())
    if newcomers:
        return (
            f"clients {sorted(newcomers)} joined after round {_SETTLED_AFTER}, are the fastest of "
            f"all, and were not chosen once in {PATIENCE} rounds; treat the unseen as promising"
        )
    return None


SILENCE_SEEDS = 3
SILENCE_ROUNDS = 60
_SILENT = (2, 5, 8)


def partly_silent(knowledge: Knowledge, seed: int) -> TinyFederation:
    """Ten clients, of which three never answer."""
    return TinyFederation(
        mean_seconds=varied_seconds(10), knowledge=knowledge, silent=_SILENT, seed=seed
    )


def silence_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 16: whether silent clients are still chosen when they have been silent for long."""
    if policy.cohort_rule == "everyone":
        return None
    settled, late = SILENCE_ROUNDS // 2, []
    for seed in range(SILENCE_SEEDS):
        federation = partly_silent(knowledge, seed)
        state = policy.init(federation.problem())
        for t in range(1, SILENCE_ROUNDS + 1):
            cohort = play_round(policy, state, federation.draw(t), seed=seed).selection
            if t > settled:
                late.append(cohort.clients)
    most = len(_SILENT) * settled * SILENCE_SEEDS
    return too_silent(late, most, f"in rounds {settled + 1} … {SILENCE_ROUNDS}")


def too_silent(cohorts: Sequence[IntArray], most: int, when: str) -> str | None:
    """Whether silent clients get more than half-way from their fair share to ``most`` places.

    That is a mild bar: the published rules of REFL and FedSUV give silent clients more than their
    fair share. A rule that does not count failures gives them nearly every place.
    """
    everybody = np.concatenate(cohorts)
    chosen, fair = int(np.isin(everybody, _SILENT).sum()), len(_SILENT) * len(everybody) / 10
    if chosen <= (fair + most) / 2:
        return None
    return (
        f"clients that never answer were chosen {chosen:,} of {most:,} times {when}, where chance "
        f"would have chosen them {fair:,.0f} times; count a client that does not complete as a bad "
        "answer"
    )


_NUM_CLIENTS = 12
_NUM_EDGES = 3
_SEEDS = 300
LEVEL = 1e-5
CHI_SQUARE_QUANTILE = {7: 35.2585, 11: 43.2060, 23: 63.9675, 35: 82.6404}
"""Of 1 - LEVEL, by degrees of freedom."""


def tie_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 9: whether round 1 favours a client, with all or two thirds of the clients available.

    Nothing tells the clients apart, so a fair policy draws its cohort uniformly among all sets of
    its size. Nothing tells the edge servers apart, either, where there are any.
    """
    everyone = np.ones(_NUM_CLIENTS, dtype=np.bool_)
    return _bias(policy, knowledge, everyone) or _bias(
        policy, knowledge, np.arange(_NUM_CLIENTS) % 3 > 0
    )


def _bias(policy: Policy[Any], knowledge: Knowledge, available: BoolArray) -> str | None:
    federation = TinyFederation(
        mean_seconds=np.full(_NUM_CLIENTS, 0.5),
        knowledge=replace(knowledge, num_edges=_NUM_EDGES if knowledge.num_edges > 0 else 0),
        equal_data=True,
        num_clusters=_NUM_CLIENTS,
        variation=0.0,
        layout="together",
    )
    state = policy.init(federation.problem())
    view = replace(federation.draw(1), available=available).view(policy)
    times = np.zeros(_NUM_CLIENTS)
    sizes = np.zeros(_SEEDS)
    met = np.zeros((_NUM_CLIENTS, _NUM_EDGES))
    for seed in range(_SEEDS):
        chosen = policy.select(state, view, stream(seed, POLICY, 1))
        times[chosen.clients] += 1
        sizes[seed] = len(chosen.clients)
        if chosen.edges is not None and len(chosen.clients) > 0:
            # One of each cohort: those of the others may well depend on it.
            someone = stream(seed, WORLD, 1).integers(len(chosen.clients))
            met[chosen.clients[someone], chosen.edges[someone]] += 1
    statistic = tie_statistic(times[available], sizes)
    among = f"in {_SEEDS} first rounds with different seeds it chose"
    if statistic > CHI_SQUARE_QUANTILE[view.num_available - 1]:
        return (
            f"{among} clients that nothing tells apart {_counts(times[available])} times "
            f"(chi-square {statistic:.0f}, p < {LEVEL:g}); break ties with the rng it is given, "
            "not by id"
        )
    pairs = met[available].ravel()
    statistic = tie_statistic(pairs, np.ones(int(pairs.sum())))
    if statistic > CHI_SQUARE_QUANTILE[len(pairs) - 1]:
        return (
            f"{among} edge servers that nothing tells apart {_counts(met.sum(axis=0))} times, for "
            f"one client of each cohort, and the first {_counts(met[available][:, 0])} times for "
            f"each client (chi-square {statistic:.0f}, p < {LEVEL:g}); break ties among edges with "
            "the rng it is given, too"
        )
    return None


def _counts(times: FloatArray) -> list[int]:
    return [int(count) for count in times]


def tie_statistic(times: FloatArray, sizes: FloatArray) -> float:
    """Pearson's statistic of how often each client was in cohorts of ``sizes``.

    Clients of a cohort exclude each other, which takes one degree of freedom: it has a chi-square
    law with ``len(times) - 1`` of them if all sets of a size are equally likely.
    """
    share = sizes / len(times)
    variance = np.sum(share * (1 - share))
    if variance == 0.0:  # everyone, or nobody: there was nothing to choose
        return 0.0
    freedom = len(times) - 1
    return float(np.sum((times - share.sum()) ** 2) / variance * freedom / len(times))
