"""Play a policy without rounds: clients are asked while others are out, and answer in any order."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, Problem, Selection
from fedmuster.core.selector import Selector
from fedmuster.testing.playing import feedback_rows, select_in, vectors_of
from fedmuster.testing.tiny_federation import Draw


class Errand(NamedTuple):
    """A client that is out, and what it will send, which is drawn before anybody is chosen.

    Args:
        asked: its part of the selection.
        answer: one row, as a policy hears it.
    """

    asked: Selection
    answer: Feedback


class TicketPlay:
    """A policy behind a Selector, and the clients that are out.

    Args:
        policy: the policy.
        problem: what the server knows of the clients.
        seed: of the policy's randomness.
        settings: further arguments of the Selector.
    """

    def __init__(
        self, policy: Policy[Any], problem: Problem, *, seed: int = 0, **settings: Any
    ) -> None:
        self.selector = Selector(policy, problem, seed=seed, **settings)
        self.out: dict[int, Errand] = {}
        """The errands of open tickets, by ticket, the oldest first."""
        self.given_up: dict[int, Errand] = {}
        """The errands of tickets that were given up and may still be answered."""

    def ask(self, draw: Draw, count: int) -> Selection:
        """Let the policy choose up to ``count`` clients."""
        selection = select_in(self.selector, draw, count=count)
        assert selection.tickets is not None
        feedback = draw.feedback(selection, self.selector.policy)
        for row, ticket in enumerate(selection.tickets.tolist()):
            this = np.array([row])
            self.out[ticket] = Errand(selection.part(this), feedback_rows(feedback, this))
        return selection

    def answer(self, tickets: Sequence[int]) -> None:
        """One message with the answers to these tickets, row by row; some may come too late."""
        both = self.out | self.given_up
        answers = [both[ticket].answer for ticket in tickets]
        signals, vectors = answers[0].signals, vectors_of(answers[0])
        for name in vectors:
            vectors[name] = np.concatenate([vectors_of(row)[name] for row in answers])
        self.selector.observe(
            Feedback(
                tickets=np.array(tickets, dtype=np.int64),
                clients=np.concatenate([row.clients for row in answers]),
                latency_seconds=np.concatenate([row.latency_seconds for row in answers]),
                completed=np.concatenate([row.answered for row in answers]),
                signals={
                    name: np.concatenate([row.signals[name] for row in answers]) for name in signals
                },
                **vectors,
            )
        )
        for ticket in tickets:
            self.out.pop(ticket, None)
            self.given_up.pop(ticket, None)

    def give_up(self, tickets: Sequence[int]) -> None:
        """Stop waiting for these."""
        self.selector.give_up(np.array(tickets, dtype=np.int64))
        self.given_up |= {ticket: self.out.pop(ticket) for ticket in tickets}

    def restart(self) -> None:
        """Go on from what the Selector saves."""
        image = self.selector.to_bytes()
        self.selector = Selector.from_bytes(image, self.selector.policy, source="the contract")
