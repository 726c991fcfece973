"""What the log says of a round."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmuster.adapters.flower.choosing.cohorts import Choice
from fedmuster.adapters.flower.grids.views import Posting
from fedmuster.adapters.flower.log import say, warn
from fedmuster.adapters.flower.replies.sorting import RoundReplies
from fedmuster.core.records import IntArray

_MOST_NAMES = 20


def tell_choice(choice: Choice, policy: str, identities: Sequence[str]) -> None:
    """Who is asked."""
    chosen = choice.selection.clients.tolist()
    names = ", ".join(identities[client] for client in chosen[:_MOST_NAMES])
    more = ", …" if len(chosen) > _MOST_NAMES else ""
    say(
        f"round {choice.selection.round}: {policy} chose {len(chosen)} of "
        f"{np.count_nonzero(choice.available)} nodes: {names}{more}"
    )


def tell_replies(
    number: int, posting: Posting, found: RoundReplies, identities: Sequence[str]
) -> None:
    """Who answered, who failed, what was refused."""
    say(
        f"round {number}: {len(found.answers)} answers, {len(found.failures)} failures, "
        f"{len(found.refused)} refused, {len(posting.silent)} without an answer after "
        f"{posting.lasted_seconds:.1f} s"
    )
    for message in posting.silent:
        client = posting.client_of[message.metadata.message_id]
        say(f"{identities[client]} has not answered; it is left alone until it does")
    for client in posting.unsent:
        say(f"{identities[client]}: nothing could be sent to it; its node has just gone")
    for client, reply in found.failures:
        say(f"{identities[client]} failed: {reply.error.reason}")
    for client, _, reason in found.refused:
        warn(f"{identities[client]}: its reply is refused: {reason}")
    for reason, count in found.strangers.items():
        warn(f"{count} replies are refused: {reason}")


def tell_missing(number: int, names: Sequence[str]) -> None:
    """Whose evaluations did not come in time."""
    shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    say(
        f"round {number}: {len(names)} nodes have not evaluated in time, and are left alone until "
        f"they have: {shown}"
    )


def tell_doubts(liars: IntArray, signals: Mapping[str, int], identities: Sequence[str]) -> None:
    """What was not believed."""
    for client in liars.tolist():
        say(
            f"{identities[client]}: the time that it reports does not fit the server's clock, "
            "which counts (its answer may have waited on the way)"
        )
    for signal, count in signals.items():
        say(f"{count} claims of {signal!r} are too far from what is usual, and count as low")
