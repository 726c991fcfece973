"""Points 7, 12 and 14: the state keeps its form, bad feedback is survived, learning pays."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.checking import cohort_fault
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.playing import (
    feedback_rows,
    nan_fault,
    play_round,
    silenced,
    spelled,
    trained,
)
from fedmuster.testing.tiny_federation import Draw, Knowledge, TinyFederation, lively

_LONG = 200


def growth_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 7: whether names, types and shapes of the state's arrays stay for 200 rounds."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    initial = _form(state)
    for t in range(1, _LONG + 1):
        play_round(policy, state, federation.draw(t))
        form = _form(state)
        for name in initial.keys() | form.keys():
            if initial.get(name) != form.get(name):
                return (
                    f"after round {t} the state's {name} was {form.get(name, 'gone')}, at first "
                    f"{initial.get(name, 'absent')}; with as many clients as before, type and "
                    "shape must stay, or a saved state cannot be restored and memory runs out"
                )
    return None


def _form(state: object) -> dict[str, str]:
    return {name: f"{a.dtype}{list(a.shape)}" for name, a in states.to_arrays(state).items()}


def poison_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 12: whether failures and missing rows put NaN into the state, or stop the policy."""
    federation = lively(knowledge)
    for rounds in (0, 20):
        healthy = trained(policy, federation, rounds)
        wounded = deepcopy(healthy)  # which goes through all of it, one mishap after another
        for t, what in enumerate(_MISHAPS, start=rounds + 1):
            fault = _mishap_fault(policy, deepcopy(healthy), rounds + 1, what, knowledge)
            fault = fault or _mishap_fault(policy, wounded, t, what, knowledge)
            if fault is not None:
                return fault
    return None


def _mishap_fault(
    policy: Policy[Any], state: Any, round_: int, what: str, knowledge: Knowledge
) -> str | None:
    federation = lively(knowledge)
    view = federation.draw(round_).view(policy)
    selection = policy.select(state, view, stream(0, POLICY, round_))
    feedback = _MISHAPS[what](federation.draw(round_).feedback(selection, policy))
    try:
        policy.observe(state, selection, feedback)
    except Exception as error:
        return f"given {what}, observe raised {type(error).__name__}: {error}; it must cope"
    fault = nan_fault(state)
    if fault is not None:
        return f"given {what}, {fault}"
    turn = play_round(policy, state, federation.draw(round_ + 1))
    fault = cohort_fault(policy, turn.view, turn.selection)
    return None if fault is None else f"after {what} {fault}"


_MISHAPS: dict[str, Callable[[Feedback], Feedback]] = {
    "a cohort that failed, with latencies of NaN": lambda f: silenced(f, latency=np.nan),
    "a cohort that failed, with infinite latencies": silenced,
    "feedback without rows": lambda f: feedback_rows(f, slice(0)),
    "feedback of one client alone": lambda f: feedback_rows(f, slice(1, 2)),
    "feedback without its first row": lambda f: feedback_rows(f, slice(1, None)),
}


_SETTLED_AFTER = 30
SEEDS = 20
_ROUNDS = 100
LEVEL = 1e-3
"""The share of policies without learning that may pass as learning."""
WAYS = 5
LOOKS = {4: (0.3, 26.3439), 8: (0.2, 8.1649), SEEDS: (0.5, 4.5899)}
"""By number of seeds: the share of LEVEL / WAYS (WAYS is the number of ways to pass) and the
quantile of Student's t for it. A clear result after four seeds needs no more."""
_NUM_CLIENTS, _COHORT_SIZE = 10, 4
_SLOW = [3, 7]
_NEEDY = [4, 5]
"""Neither among the four fastest nor the four slowest: nobody finds them who looks at time."""


class Instance(NamedTuple):
    """An easy federation, and what there is to gain in it.

    Args:
        federation: which.
        worth: what each client is good for, in a round; [K, M] where that depends on the edge.
        what: in words, with room for by how much more than a random cohort's it was.
        of_cohort: what that makes a cohort good for. By the "sum" more clients are better, so a
            random cohort is as large as can be; else it is as large as the policy's.
    """

    federation: TinyFederation
    worth: Callable[[Draw], FloatArray]
    what: str
    of_cohort: Literal["sum", "mean", "least"]


def learning_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 14: whether it beats random choice, if it learns or knows the truth.

    A policy may be after answers in time, after short rounds, after clients that the model serves
    badly and so learns most from, after clients that will be gone soon, or after clients whose
    updates are unlike those of others. There is an easy instance of each, and it must do well in
    one.

    A policy that declares that it learns nothing must not depend on what it observed. If it states
    inclusion probabilities, these must not.
    """
    if not policy.learns:
        fault = _dependence(policy, knowledge)
        if fault is not None:
            return fault
    return idleness(policy, knowledge, _advantage) if policy.learns or policy.oracle else None


def _equally_likely(one: Selection, other: Selection) -> bool:
    """Whether both state how likely clients were, and the same of those that both chose."""
    if one.inclusion is None or other.inclusion is None:
        return False
    _, here, there = np.intersect1d(one.clients, other.clients, return_indices=True)
    return bool(np.allclose(one.inclusion[here], other.inclusion[there], rtol=1e-9))


def _dependence(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    federation = lively(knowledge)
    fresh = policy.init(federation.problem())
    state = trained(policy, federation, _SETTLED_AFTER)
    for t in range(_SETTLED_AFTER + 1, _SETTLED_AFTER + 21):
        view = federation.draw(t).view(policy)
        one, other = (policy.select(s, view, stream(0, POLICY, t)) for s in (fresh, state))
        # Who is chosen, and where: whose answers close the round may well depend on the past.
        if spelled(one) != spelled(other) and not _equally_likely(one, other):
            return (
                f"it declares learns = False, but in round {t} it chose {spelled(other)} where it "
                f"would have chosen {spelled(one)} had it observed nothing; declare learns = True"
            )
    return None


Advantage = Callable[[Policy[Any], Instance, int], float]
"""How much better than random choice a policy does in an instance, with a seed."""


def idleness(policy: Policy[Any], knowledge: Knowledge, advantage: Advantage) -> str | None:
    """Whether the policy has no significant advantage over random choice in any easy instance."""
    instances = easy_instances(knowledge)
    gains, found = [np.empty(0) for _ in instances], [""] * len(instances)
    for patient in (False, True):  # instances that look hopeless come last: one is enough to pass
        for i, instance in enumerate(instances):
            for seeds, (_, quantile) in LOOKS.items():
                more = [advantage(policy, instance, seed) for seed in range(len(gains[i]), seeds)]
                gains[i] = np.append(gains[i], more)
                mean, error = gains[i].mean(), gains[i].std(ddof=1) / np.sqrt(len(gains[i]))
                if len(gains[i]) == seeds and mean > max(quantile * error, 1e-9):  # of rounding
                    return None
                if (mean < 2 * error and not patient) or (mean < error and len(gains[i]) >= 8):
                    break
            found[i] = instance.what.format(f"{mean:.4f} ± {error:.4f} ({len(gains[i])} seeds)")
    return (
        f"of {_NUM_CLIENTS} clients {'; '.join(found)} (mean and standard error); "
        f"one-sided t-tests take none of it for real (p > {LEVEL / WAYS:g}); if what it "
        "observes does not change what it selects, declare learns = False"
    )


@lru_cache(maxsize=8)
def easy_instances(knowledge: Knowledge) -> tuple[Instance, ...]:
    """Easy means: a client differs by more than any usual confidence radius after the 40 answers
    that an equal share of 100 rounds is."""
    seconds, client = np.linspace(0.10, 0.12, _NUM_CLIENTS), np.arange(_NUM_CLIENTS)
    plain = TinyFederation(
        mean_seconds=seconds,
        cohort_size=_COHORT_SIZE,
        knowledge=knowledge,
        equal_data=True,
        num_clusters=5,
        layout="apart",
    )
    ten_times = np.where(np.isin(client, _SLOW), 10.0, 1.0)
    three_times = np.where(np.isin(client, _NEEDY), 3.0, 1.0)
    # Where contexts foretell it, there are contexts, even if there are none elsewhere.
    told = replace(knowledge, num_features=max(knowledge.num_features, 1))
    late = Instance(
        replace(plain, mean_seconds=10 * seconds, mean_load=0.1 * ten_times, knowledge=told),
        lambda draw: draw.in_time,
        f"{len(_SLOW)} were late, as their features foretell, and its cohorts had {{}} "
        "more answers in time than random ones",
        "sum",
    )
    slow = Instance(
        replace(plain, mean_seconds=seconds * ten_times),
        lambda draw: -draw.latency_seconds,
        f"{len(_SLOW)} were ten times slower, and its rounds were shorter by {{}} s than those of "
        "random cohorts of its size",
        "least",
    )
    needy = Instance(
        replace(plain, mean_loss=three_times),
        lambda draw: draw.loss,
        f"{len(_NEEDY)} had three times the loss, and the loss of its cohorts was higher by {{}}",
        "mean",
    )
    leaving = Instance(
        plain,
        lambda draw: draw.leaving.astype(np.float64),
        "some said that they would leave, and their share in its cohorts was higher by {}",
        "mean",
    )
    unlike = Instance(
        replace(plain, balanced=tuple(_NEEDY)),
        lambda _: np.isin(client, _NEEDY).astype(np.float64),
        f"{len(_NEEDY)} had samples of all classes and the others of one, and their share in its "
        "cohorts was higher by {}",
        "mean",
    )
    return late, slow, needy, leaving, unlike


@lru_cache(maxsize=64)  # all policies play the same rounds, in which none may write
def draws_of(instance: Instance, seed: int, rounds: int) -> list[Draw]:
    """The first rounds of an instance; nobody may write into them."""
    federation = replace(instance.federation, seed=seed)
    draws = [federation.draw(t) for t in range(1, rounds + 1)]
    for array in (getattr(draw, item.name) for draw in draws for item in fields(Draw)):
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return draws


def _advantage(policy: Policy[Any], instance: Instance, seed: int) -> float:
    """The mean advantage over random cohorts, which budgets pay for, too, in the same rounds."""
    state, advantage = policy.init(instance.federation.problem()), 0.0
    for draw in draws_of(instance, seed, _ROUNDS):
        chosen = play_round(policy, state, draw, seed=seed).selection
        advantage += gain_over_random(instance, draw, chosen.clients)
    return advantage / _ROUNDS


def gain_over_random(instance: Instance, draw: Draw, chosen: IntArray) -> float:
    """What a cohort is worth, less what random ones with as many at each edge are on average.

    Random cohorts are drawn from the clients that are available.
    """
    worth, clients = instance.worth(draw), np.arange(_NUM_CLIENTS)
    home, payable = np.zeros_like(clients), np.array([draw.cohort_size])
    if draw.edges is not None:  # each client is covered by one, and costs 1
        home, payable = draw.edges.coverage.argmax(axis=1), draw.edges.budget.astype(np.int64)
        worth = worth if worth.ndim == 1 else worth[clients, home]
    at_edge = (home[:, np.newaxis] == np.arange(len(payable))) & draw.available[:, np.newaxis]
    count, crowd = at_edge[chosen].sum(axis=0), at_edge.sum(axis=0)
    mean = worth @ at_edge / np.maximum(crowd, 1)
    if instance.of_cohort == "sum":
        return float(worth[chosen].sum() - np.maximum(count, payable) @ mean)
    if len(chosen) == 0:
        return 0.0
    if instance.of_cohort == "mean":
        return float(worth[chosen].mean() - count @ mean / len(chosen))
    order = np.argsort(-worth)
    odds = np.ones(len(order))  # that all of a random cohort are among so many of the best
    for edge, size in enumerate(count):
        for drawn in range(size):
            odds *= np.maximum(at_edge[order, edge].cumsum() - drawn, 0) / (crowd[edge] - drawn)
    return float(worth[chosen].min() - worth[order] @ np.diff(odds, prepend=0.0))
