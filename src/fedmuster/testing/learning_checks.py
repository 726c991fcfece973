"""Points 7, 12 and 14: the state keeps its form, bad feedback is survived, learning pays."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.checking import cohort_fault
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, Problem, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.random import Random
from fedmuster.testing.playing import feedback_rows, nan_fault, play_round, spelled, trained
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
    feedback = _MISHAPS[what](federation.draw(round_).feedback(selection))
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


def _nobody_completed(feedback: Feedback, latency: float) -> Feedback:
    size = len(feedback.clients)
    return replace(
        feedback,
        latency_seconds=np.full(size, latency),
        completed=np.zeros(size, dtype=np.bool_),
        signals={name: np.full(size, np.nan) for name in feedback.signals},
    )


_MISHAPS = {
    "a cohort that failed, with latencies of NaN": lambda f: _nobody_completed(f, np.nan),
    "a cohort that failed, with infinite latencies": lambda f: _nobody_completed(f, np.inf),
    "feedback without rows": lambda f: feedback_rows(f, slice(0)),
    "feedback of one client alone": lambda f: feedback_rows(f, slice(1, 2)),
    "feedback without its first row": lambda f: feedback_rows(f, slice(1, None)),
}


_SETTLED_AFTER = 30
SEEDS = 20
_ROUNDS = 100
LEVEL = 1e-3
"""The share of policies without learning that may pass as learning."""
WAYS = 4
LOOKS = {8: (0.1, 8.7825), SEEDS: (0.9, 4.2331)}
"""By number of seeds: the share of LEVEL / WAYS (WAYS is the number of ways to pass) and the
quantile of Student's t for it. A clear result after eight seeds needs no more seeds."""
_RIVAL = "rival"
_NUM_CLIENTS, _COHORT_SIZE = 10, 4
_SLOW = [3, 7]
_NEEDY = [4, 5]
"""Neither among the four fastest nor the four slowest: nobody finds them who looks at time."""


class Instance(NamedTuple):
    """An easy federation, and what there is to gain in it.

    Args:
        federation: which.
        gain: what a cohort is good for, in a round.
        what: in words, with room for by how much more than a random cohort's it was.
        whole: whether more clients are better, so that a random cohort may be as large as can be;
            else it is as large as the policy's.
    """

    federation: TinyFederation
    gain: Callable[[Draw, Selection], float]
    what: str
    whole: bool = False


def learning_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 14: whether it beats random choice, if it learns or knows the truth.

    A policy may be after answers in time, after short rounds, after clients that the model serves
    badly and so learns most from, or after clients that will be gone soon. There is an easy
    instance of each, and it must do well in one.

    A policy that declares that it learns nothing must not depend on what it observed.
    """
    if not policy.learns:
        fault = _dependence(policy, knowledge)
        if fault is not None:
            return fault
    return _idleness(policy, knowledge) if policy.learns or policy.oracle else None


def _dependence(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    federation = lively(knowledge)
    fresh = policy.init(federation.problem())
    state = trained(policy, federation, _SETTLED_AFTER)
    for t in range(_SETTLED_AFTER + 1, _SETTLED_AFTER + 21):
        view = federation.draw(t).view(policy)
        one, other = (policy.select(s, view, stream(0, POLICY, t)) for s in (fresh, state))
        # Who is chosen, and where: whose answers close the round may well depend on the past.
        if not (
            np.array_equal(one.clients, other.clients)
            and np.array_equal(one.edge_of_each, other.edge_of_each)
        ):
            return (
                f"it declares learns = False, but in round {t} it chose {spelled(other)} where it "
                f"would have chosen {spelled(one)} had it observed nothing; declare learns = True"
            )
    return None


def _idleness(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    instances = list(easy_instances(knowledge))
    gains, found = [np.empty(0) for _ in instances], [""] * len(instances)
    for patient in (False, True):  # instances that look hopeless come last: one is enough to pass
        for i, instance in enumerate(instances):
            for seeds, (_, quantile) in LOOKS.items():
                more = [_advantage(policy, instance, seed) for seed in range(len(gains[i]), seeds)]
                gains[i] = np.append(gains[i], more)
                mean, error = gains[i].mean(), gains[i].std(ddof=1) / np.sqrt(len(gains[i]))
                if len(gains[i]) == seeds and mean > quantile * error:
                    return None
                if not patient and mean < 2 * error:
                    break
            found[i] = instance.what.format(f"{mean:.4f} ± {error:.4f}")
    return (
        f"of {_NUM_CLIENTS} clients {'; '.join(found)} (mean and standard error of {SEEDS} seeds); "
        f"one-sided paired t-tests take none of it for real (p > {LEVEL / WAYS:g}); if what it "
        "observes does not change what it selects, declare learns = False"
    )


def easy_instances(knowledge: Knowledge) -> Iterator[Instance]:
    """Easy means: a client differs by more than any usual confidence radius after the 40 answers
    that an equal share of 100 rounds is."""
    seconds, ones = np.linspace(0.10, 0.12, _NUM_CLIENTS), np.ones(_NUM_CLIENTS)
    plain = TinyFederation(
        mean_seconds=seconds,
        cohort_size=_COHORT_SIZE,
        knowledge=knowledge,
        equal_data=True,
        num_clusters=5,
        layout="apart",
    )
    ten_times = ones.copy()
    ten_times[_SLOW] = 10.0
    three_times = ones.copy()
    three_times[_NEEDY] = 3.0
    yield Instance(
        # Where contexts foretell it, there are contexts, even if there are none elsewhere.
        replace(
            plain,
            mean_seconds=10 * seconds,
            mean_load=0.1 * ten_times,
            knowledge=replace(knowledge, num_features=max(knowledge.num_features, 1)),
        ),
        _answers_in_time,
        f"{len(_SLOW)} were late, as their features foretell, and its cohorts had {{}} "
        "more answers in time than random ones",
        whole=True,
    )
    yield Instance(
        replace(plain, mean_seconds=seconds * ten_times),
        _speed,
        f"{len(_SLOW)} were ten times slower, and its rounds were shorter by {{}} s than those of "
        "random cohorts of its size",
    )
    yield Instance(
        replace(plain, mean_loss=three_times),
        _loss,
        f"{len(_NEEDY)} had three times the loss, and the loss of its cohorts was higher by {{}}",
    )
    yield Instance(
        plain,
        _share_leaving,
        "some said that they would leave, and their share in its cohorts was higher by {}",
    )


def _speed(draw: Draw, chosen: Selection) -> float:
    return -float(chosen.rows_of(draw.latency_seconds).max(initial=0.0))


def _answers_in_time(draw: Draw, chosen: Selection) -> float:
    return float(chosen.rows_of(draw.in_time).sum())


def _loss(draw: Draw, chosen: Selection) -> float:
    return float(draw.loss[chosen.clients].sum()) / max(len(chosen.clients), 1)


def _share_leaving(draw: Draw, chosen: Selection) -> float:
    return np.count_nonzero(draw.leaving[chosen.clients]) / max(len(chosen.clients), 1)


def _advantage(policy: Policy[Any], instance: Instance, seed: int) -> float:
    """The mean advantage over random cohorts, which budgets pay for, too, in the same rounds."""
    federation = replace(instance.federation, seed=seed)
    problem = federation.problem()
    state = policy.init(problem)
    advantage = 0.0
    for t in range(1, _ROUNDS + 1):
        draw = federation.draw(t)
        chosen = play_round(policy, state, draw, seed=seed).selection
        size = len(chosen.clients)
        if instance.whole:
            size = max(size, draw.cohort_size)
        rival = random_cohort(problem, replace(draw, cohort_size=size), seed)
        advantage += instance.gain(draw, chosen) - instance.gain(draw, rival)
    return advantage / _ROUNDS


def random_cohort(problem: Problem, draw: Draw, seed: int) -> Selection:
    """Random clients at random edges."""
    rival = Random()
    return rival.select(rival.init(problem), draw.view(rival), stream(seed, _RIVAL, draw.round))
