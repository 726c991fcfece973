"""Point 17: runs without rounds."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from fedmuster.core.errors import PolicyError
from fedmuster.core.policy import Policy
from fedmuster.core.records import Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import WORLD, stream
from fedmuster.testing.cohort_checks import SILENCE_ROUNDS, SILENCE_SEEDS, partly_silent, too_silent
from fedmuster.testing.learning_checks import Instance, draws_of, gain_over_random, idleness
from fedmuster.testing.playing import (
    differing,
    feedback_rows,
    image,
    join_rest,
    nan_fault,
    same_selection,
    select_in,
    spelled,
)
from fedmuster.testing.ticket_play import Errand, TicketPlay
from fedmuster.testing.tiny_federation import Draw, Knowledge, lively


def roundless_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 17: whether it runs without rounds, or says that it cannot.

    A policy with ``rounds_only`` must be refused by a Selector that asks for clients while others
    are out. Any other must choose valid clients among those that are idle, learn from every
    answer, whatever its age, and learn enough to beat random choice, if it learns at all.
    """
    if policy.rounds_only is not None:
        return _refusal(policy, knowledge)
    return (
        _liveliness_fault(policy, knowledge)
        or encore_fault(policy, knowledge)
        or _silence_fault(policy, knowledge)
        or (idleness(policy, knowledge, advantage) if policy.learns or policy.oracle else None)
    )


def _refusal(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    federation = lively(knowledge)
    try:
        select_in(Selector(policy, federation.problem()), federation.draw(1), count=1)
    except PolicyError:
        return None
    return (
        f"it declares rounds_only = {policy.rounds_only!r}, but a Selector let it choose while "
        "others are out; say why it needs rounds, or declare rounds_only = None"
    )


_RESIDENTS = 10
_STEPS = 90
_SINGLY = 30
_JOINING = 45
_GIVES_UP = 0.2
_COMES_LATE = 0.3


def _liveliness_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Whether all goes well with unreliable clients that come, go, join and answer at any time.

    A second run goes the same way, but is saved and restored before each step.
    """
    federation = lively(knowledge)
    before = replace(federation, mean_seconds=federation.mean_seconds[:_RESIDENTS]).problem()
    steady, restarted = TicketPlay(policy, before), TicketPlay(policy, before)
    for t in range(1, _STEPS + 1):
        if t == _JOINING:
            for run in (steady, restarted):
                join_rest(run.selector, federation.problem())
        draw = federation.draw(t)
        draw = draw if t >= _JOINING else draw.of_first(_RESIDENTS)
        fault = _step_fault(steady, restarted, draw, stream(0, WORLD, t, 1))
        if fault is not None:
            return fault
        if t == _SINGLY and policy.learns:
            learned = differing(image(steady.selector.state), image(policy.init(before)))
            if not learned:
                return "answers that came one by one changed nothing; learn from every answer"
    return None


def _step_fault(
    steady: TicketPlay, restarted: TicketPlay, draw: Draw, rng: Generator
) -> str | None:
    """Some tickets are closed, and clients are asked if there is room."""
    restarted.restart()
    most = 1 if draw.round <= _SINGLY else 3
    closing = rng.permutation(list(steady.out))[: rng.integers(0, most, endpoint=True)]
    given_up = rng.random(len(closing)) < _GIVES_UP
    late = [ticket for ticket in steady.given_up if rng.random() < _COMES_LATE]
    answered = [*closing[~given_up].tolist(), *late]
    for ticket in closing.tolist():
        fault = _deafness(steady, steady.out[ticket])
        if fault is not None:
            return fault
    for run in (steady, restarted):
        if answered:
            run.answer(answered)
        run.give_up(closing[given_up].tolist())
    room = min(2 * steady.selector.problem.cohort_size, _RESIDENTS - 2) - len(steady.out)
    if room > 0:
        count = int(rng.integers(1, room, endpoint=True))
        chosen, other = (run.ask(draw, count) for run in (steady, restarted))
        if len(chosen.clients) > count:
            return (
                f"it chose {spelled(chosen)} when {count} clients were to be asked while others "
                "are out; choose at most view.cohort_size, or declare rounds_only"
            )
        if not same_selection(chosen, other):
            return (
                f"saved and restored while tickets are open it chose {spelled(other)} instead of "
                f"{spelled(chosen)}; all that it learns must be in arrays that are fields of its "
                "state"
            )
        fault = _disorder(steady, chosen, draw)
        if fault is not None:
            return fault
    changed = differing(image(steady.selector.state), image(restarted.selector.state))
    if changed:
        return (
            f"saved and restored while tickets are open it learned another {', '.join(changed)}; "
            "all that it learns must be in arrays that are fields of its state"
        )
    return nan_fault(steady.selector.state)


def _disorder(run: TicketPlay, chosen: Selection, draw: Draw) -> str | None:
    """Whether it matters in which order the clients of a selection stand in a message."""
    policy = run.selector.policy
    answers = replace(draw.feedback(chosen, policy), round=run.selector.round, round_seconds=None)
    states = []
    for order in (1, -1):
        twin = deepcopy(run.selector.state)
        rows = np.arange(len(chosen.clients))[::order]
        policy.observe(twin, chosen, feedback_rows(answers, rows))
        states.append(image(twin))
    changed = differing(*states)
    if not changed:
        return None
    return (
        f"the state's {', '.join(changed)} differ when answers that come together come in another "
        "order; match rows by feedback.clients, and sort them before summing"
    )


def _deafness(run: TicketPlay, errand: Errand) -> str | None:
    """Whether an answer teaches nothing because its client was asked in an earlier round."""
    policy, state, now = run.selector.policy, run.selector.state, run.selector.round
    if errand.asked.round == now:
        return None
    learned = []
    for asked in (errand.asked, replace(errand.asked, round=now)):
        twin = deepcopy(state)
        policy.observe(twin, asked, replace(errand.answer, round=now))
        learned.append(differing(image(state), image(twin)))
    if learned[0] or not learned[1]:
        return None
    return (
        f"in round {now} it learned nothing from a client that was asked in round "
        f"{errand.asked.round}, and would have learned had the client been asked in round {now}; "
        "answers may be older than others that came before them"
    )


def encore_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Whether a client may answer several times in one round, while another is still out."""
    federation = lively(knowledge)
    run = TicketPlay(policy, federation.problem())
    alone = np.arange(len(federation.mean_seconds)) < 2
    for t in range(1, 3 * federation.cohort_size + 1):
        draw = federation.draw(t)
        covered = True if draw.edges is None else draw.edges.covered
        run.ask(replace(draw, available=alone & covered), 2)
        for ticket, errand in list(run.out.items()):
            if errand.asked.clients[0] == 0:
                run.answer([ticket])
        fault = nan_fault(run.selector.state)
        if fault is not None:
            return f"after a client had answered several times in a round, {fault}"
    return None


def _silence_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Whether silent clients keep their places where their tickets are given up."""
    late, steps = [], SILENCE_ROUNDS * partly_silent(knowledge, 0).cohort_size
    for seed in range(SILENCE_SEEDS):
        federation = partly_silent(knowledge, seed)
        # What the policy itself makes of silence: the Selector lets nobody rest.
        run = TicketPlay(policy, federation.problem(), seed=seed, rest_after=0)
        for t in range(1, steps + 1):
            draw = federation.draw(t)
            if len(run.out) == federation.cohort_size:
                ticket = int(stream(seed, WORLD, t, 1).choice(list(run.out)))
                if run.out[ticket].answer.answered[0]:
                    run.answer([ticket])
                else:
                    run.give_up([ticket])
            chosen = run.ask(draw, federation.cohort_size - len(run.out))
            if t > steps // 2:
                late.append(chosen.clients)
    return too_silent(late, sum(map(len, late)), "without rounds, in the second half of the run")


_DECISIONS = 400


def advantage(policy: Policy[Any], instance: Instance, seed: int) -> float:
    """The mean advantage over random choice among the idle clients, slot by slot.

    Answers come in random order, so that a client's latency does not decide how often it is idle:
    a policy that owes everybody the same would else choose slow clients whenever they are idle.
    """
    run = TicketPlay(policy, instance.federation.problem(), seed=seed)
    slots, gained = instance.federation.cohort_size, 0.0
    for draw in draws_of(instance, seed, _DECISIONS):
        if run.out:
            run.answer([int(stream(seed, WORLD, draw.round, 1).choice(list(run.out)))])
        seen = _idle(draw, run, slots)
        selection = run.ask(seen, seen.cohort_size)
        gained += gain_over_random(instance, seen, selection.clients)
    return gained / _DECISIONS


def _idle(draw: Draw, run: TicketPlay, slots: int) -> Draw:
    """The draw with the clients that are not out, the free slots, and what is left of budgets."""
    seen = replace(
        draw,
        available=draw.available & ~run.selector.tickets.busy,
        cohort_size=slots - len(run.out),
    )
    if draw.edges is None:
        return seen
    out = [int(errand.asked.edge_of_each[0]) for errand in run.out.values()]
    left = draw.edges.budget - np.bincount(out, minlength=draw.edges.num_edges)
    return replace(seen, edges=replace(draw.edges, budget=left))
