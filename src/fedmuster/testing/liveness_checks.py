"""Point 19: silent clients and floods of newcomers do not stop a federation."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from fedmuster.core.arrays import IntArray
from fedmuster.core.policy import Policy
from fedmuster.core.records import Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import LAYOUT, WORLD, stream
from fedmuster.testing.playing import finish, join_rest, select_in
from fedmuster.testing.ticket_play import TicketPlay
from fedmuster.testing.tiny_federation import Knowledge, TinyFederation, varied_seconds

NUM_CLIENTS: Final = 20
COHORT_SIZE: Final = 4
ROUNDS: Final = 200
SILENT: Final = (2, 6, 12, NUM_CLIENTS - COHORT_SIZE)
"""Silent clients: 10 %, 30 %, 60 % and K - m."""
LONGEST_DROUGHT: Final = 50
"""Decisions."""
LARGEST_RATIO: Final = 1.5
"""Of the silent clients' share of places to their share of K."""
_FLOOD: Final = 20
_FLOODED_ROUNDS: Final = 100


def liveness_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 19: whether silent clients or newcomers take over, behind a Selector.

    - With any number of silent clients up to K - m, an answer comes in each 50 decisions, and after
      200 rounds the share of silent clients in all places is at most 1.5 times their share of K.
    - Newcomers that never answer get at most the Selector's quota of the places.

    Both are played in rounds, and slot by slot unless the policy works in rounds only. A policy
    that asks every available client has no places to share out: only the answers are counted.
    """
    for runs in _ways(policy):
        for count in SILENT:
            fault = _silence_fault(runs, policy, knowledge, count)
            if fault is not None:
                return fault
        if policy.cohort_rule != "everyone":
            fault = _flood_fault(runs, policy, knowledge)
            if fault is not None:
                return fault
    return None


@dataclass
class Tally:
    """The places that were given out, and the decisions since the last answer."""

    clients: list[IntArray]
    since_answer: int = 0
    longest_drought: int = 0

    def chose(self, selection: Selection) -> None:
        """Count a decision."""
        self.clients.append(selection.clients)
        self.since_answer += 1
        self.longest_drought = max(self.longest_drought, self.since_answer)

    def heard(self, answers: int) -> None:
        """Count answers."""
        if answers > 0:
            self.since_answer = 0

    def share(self, clients: IntArray, *, first: int = 0) -> float:
        """The share of these clients in the places of the decisions from ``first`` on."""
        everybody = np.concatenate(self.clients[first:])
        return float(np.isin(everybody, clients).sum() / max(len(everybody), 1))


class InRounds:
    """A policy behind a Selector, round by round."""

    way = "in rounds"

    def __init__(self, policy: Policy[Any], federation: TinyFederation, *, seed: int) -> None:
        self.selector: Selector[Any] = Selector(policy, federation.problem(), seed=seed)
        self.tally = Tally([])

    def play(self, federation: TinyFederation, rounds: int) -> None:
        """Play on for a number of rounds."""
        for _ in range(rounds):
            draw = federation.draw(self.selector.round)
            selection = select_in(self.selector, draw)
            self.tally.chose(selection)
            finish(self.selector, draw)
            self.tally.heard(int(draw.completed[selection.clients].sum()))


class BySlots:
    """A policy behind a Selector that fills slots one by one; each job is closed on its own."""

    way = "slot by slot"

    def __init__(self, policy: Policy[Any], federation: TinyFederation, *, seed: int) -> None:
        self.run = TicketPlay(policy, federation.problem(), seed=seed)
        self.selector = self.run.selector
        self.seed = seed
        self.tally = Tally([])

    def play(self, federation: TinyFederation, rounds: int) -> None:
        """Play on for a number of rounds: cohorts that are asked client by client."""
        size = federation.cohort_size
        for _ in range(rounds * size):
            step = self.selector.decisions + 1
            while len(self.run.out) >= size:
                self._close_one(step)
            before = len(self.run.out)
            self.tally.chose(self.run.ask(federation.draw(step), 1))
            if len(self.run.out) == before and before > 0:
                self._close_one(step)

    def _close_one(self, step: int) -> None:
        ticket = int(stream(self.seed, WORLD, step, 1).choice(list(self.run.out)))
        if self.run.out[ticket].answer.answered[0]:
            self.run.answer([ticket])
            self.tally.heard(1)
        else:
            self.run.give_up([ticket])


Way = type[InRounds] | type[BySlots]


def _ways(policy: Policy[Any]) -> Iterator[Way]:
    yield InRounds
    if policy.rounds_only is None:
        yield BySlots


def _silence_fault(way: Way, policy: Policy[Any], knowledge: Knowledge, count: int) -> str | None:
    silent = np.sort(stream(count, LAYOUT).choice(NUM_CLIENTS, count, replace=False))
    federation = TinyFederation(
        mean_seconds=varied_seconds(NUM_CLIENTS),
        cohort_size=COHORT_SIZE,
        knowledge=knowledge,
        silent=tuple(silent.tolist()),
        seed=count,
    )
    run = way(policy, federation, seed=count)
    run.play(federation, ROUNDS)
    told = f"{way.way}, with {count} of {NUM_CLIENTS} clients that never answer,"
    if run.tally.longest_drought > LONGEST_DROUGHT:
        return (
            f"{told} {run.tally.longest_drought} decisions in a row brought no answer; choose "
            "clients while some are available, also when many have failed"
        )
    share, fair = run.tally.share(silent), count / NUM_CLIENTS
    if share > LARGEST_RATIO * fair and policy.cohort_rule != "everyone":
        return (
            f"{told} these got {share:.0%} of the places in {ROUNDS} rounds, more than "
            f"{LARGEST_RATIO} times their share of {fair:.0%}; count a client that does not "
            "complete as a bad answer, and choose available clients only"
        )
    return None


def _flood_fault(way: Way, policy: Policy[Any], knowledge: Knowledge) -> str | None:
    newcomers = NUM_CLIENTS + np.arange(_FLOOD)
    flooded = TinyFederation(
        mean_seconds=varied_seconds(NUM_CLIENTS + _FLOOD),
        cohort_size=COHORT_SIZE,
        knowledge=knowledge,
        silent=tuple(newcomers.tolist()),
    )
    before = replace(flooded, mean_seconds=flooded.mean_seconds[:NUM_CLIENTS], silent=())
    run = way(policy, before, seed=0)
    run.play(before, ROUNDS // 10)
    first = len(run.tally.clients)
    join_rest(run.selector, flooded.problem())
    run.play(flooded, _FLOODED_ROUNDS)
    share, quota = run.tally.share(newcomers, first=first), run.selector.liveness.newcomer_quota
    if share <= quota:
        return None
    return (
        f"{way.way}, {_FLOOD} newcomers that never answer got {share:.1%} of the next "
        f"{_FLOODED_ROUNDS} rounds' places, more than their quota of {quota:.0%}; choose available "
        "clients only"
    )
