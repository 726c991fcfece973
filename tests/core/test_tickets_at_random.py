"""Random calls of a selector without rounds, against a model of tickets in plain Python."""

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.recording import Recorder, recorder

from fedmuster import Feedback, Selector
from fedmuster.core.tickets import AGAIN, LATE, OTHER, UNKNOWN

COHORT, MOST_CLIENTS = 3, 9


class Tickets(RuleBasedStateMachine):
    """The model: who holds which ticket, what was given up, what the policy must have heard."""

    def __init__(self) -> None:
        super().__init__()
        self.selector: Selector[Any] = recorder(5, COHORT)
        self.clients = 5
        self.owner: list[int] = []  # of each ticket
        self.open: dict[int, int] = {}  # ticket -> client
        self.given_up: dict[int, int] = {}  # ticket -> client, of tickets that were given up
        self.times: Counter[int] = Counter()
        self.completed: Counter[int] = Counter()
        self.refused: Counter[str] = Counter()
        self.round, self.asked, self.decisions = 1, 0, 0

    @rule(count=st.integers(1, 4), there=st.sets(st.integers(0, MOST_CLIENTS - 1)))
    def ask(self, count: int, there: set[int]) -> None:
        if self.asked >= COHORT:
            self.round, self.asked = self.round + 1, 0
        available = np.isin(np.arange(self.clients), list(there))
        idle = set(np.flatnonzero(available).tolist()) - set(self.open.values())
        selection = self.selector.select(count=count, available=available)
        chosen = selection.clients.tolist()
        assert selection.round == self.round
        assert set(chosen) <= idle
        assert len(chosen) == min(count, len(idle))
        assert selection.tickets is not None
        assert selection.tickets.tolist() == [len(self.owner) + row for row in range(len(chosen))]
        for client in chosen:
            self.open[len(self.owner)] = client
            self.owner.append(client)
        self.asked, self.decisions = self.asked + len(chosen), self.decisions + 1

    @precondition(lambda self: self.owner)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Any tickets, open, closed or unknown, some twice, and some from the wrong client."""
        numbers = st.integers(-1, len(self.owner))
        tickets = data.draw(st.lists(numbers, min_size=1, max_size=6), label="tickets")
        wrong = data.draw(st.sets(st.integers(0, 5), max_size=1), label="wrong client")
        spoilt = data.draw(st.sets(st.integers(0, 5), max_size=2), label="spoilt")
        known = range(len(self.owner))
        right = [self.owner[number] if number in known else 0 for number in tickets]
        clients = [(c + 1) % self.clients if row in wrong else c for row, c in enumerate(right)]
        seconds = [np.nan if row in spoilt else 1.0 + n for row, n in enumerate(tickets)]
        good, bad = Counter[int](), Counter[int]()
        refused: Counter[str] = Counter()
        for row, (number, client) in enumerate(zip(tickets, clients, strict=True)):
            if number not in known:
                refused[UNKNOWN] += 1
            elif number in self.open:
                if client != self.open[number]:
                    refused[OTHER] += 1
                else:
                    (bad if row in spoilt else good)[number] += 1
            elif number not in self.given_up:
                refused[AGAIN] += 1
            elif self.given_up[number] != client:
                refused[OTHER] += 1
            else:
                refused[LATE] += 1
                del self.given_up[number]
        refused["latency not finite and positive"] += bad.total()
        refused["duplicate"] += good.total() - len(good)
        report = self.selector.observe(
            Feedback(
                tickets=np.array(tickets),
                clients=np.array(clients),
                latency_seconds=np.array(seconds),
            )
        )
        assert report.accepted == len(good)
        assert Counter(report.refused) == +refused
        lost = [self.open[number] for number in bad if number not in good]
        assert report.not_completed.tolist() == sorted(lost)
        self.completed.update(self.open[number] for number in good)
        self.refused += refused
        self.close(set(good) | set(bad))

    @precondition(lambda self: self.owner)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        numbers = st.integers(-1, len(self.owner))
        tickets = data.draw(st.lists(numbers, max_size=4), label="tickets")
        closing = {number for number in tickets if number in self.open}
        for number in tickets:
            if number not in self.open:
                self.refused[AGAIN if 0 <= number < len(self.owner) else UNKNOWN] += 1
        report = self.selector.give_up(tickets)
        clients = {number: self.open[number] for number in closing}
        assert report.not_completed.tolist() == sorted(clients.values())
        self.given_up |= clients
        self.close(closing)

    def close(self, tickets: set[int]) -> None:
        """The policy hears of each of these tickets, once."""
        self.times.update(self.open.pop(number) for number in tickets)
        if tickets and not self.open:
            self.round, self.asked = self.round + 1, 0

    @precondition(lambda self: self.clients < MOST_CLIENTS)
    @rule()
    def join(self) -> None:
        assert self.selector.join(1).tolist() == [self.clients]
        self.clients += 1

    @rule()
    def save_and_restore(self) -> None:
        image = self.selector.to_bytes()
        self.selector = Selector.from_bytes(image, Recorder(), source="here")
        assert self.selector.to_bytes() == image

    @invariant()
    def the_model_is_right(self) -> None:
        selector, state = self.selector, self.selector.state
        everyone = range(self.clients)
        assert selector.tickets.numbers.tolist() == sorted(self.open)
        assert len(selector.tickets) == len(self.open)
        assert np.flatnonzero(selector.tickets.busy).tolist() == sorted(self.open.values())
        assert selector.refused == +self.refused
        assert state.times.tolist() == [self.times[client] for client in everyone]
        assert state.completed.tolist() == [self.completed[client] for client in everyone]
        assert (selector.round, selector.decisions) == (self.round, self.decisions)
        # Each ticket is open, or the policy has heard of it exactly once.
        assert self.times.total() + len(self.open) == len(self.owner)


TestTickets = Tickets.TestCase
