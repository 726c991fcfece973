"""Runs of a real federation: whose clients are whose, and how fast they were.

In a simulation client 3 is client 3 in every run. Here nodes come in any order, and some only to
one run, so journals are read as if all runs had known the same clients in the same order.
"""

from collections.abc import Sequence

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import StateError
from fedmuster.experiments.journal import JournalReader

_MOST_GROUPS = 10
_CLOCK = "A real federation: times are of training rounds on the server's clock"


def match_clients(journals: Sequence[JournalReader]) -> tuple[str, ...]:
    """Renumber the clients of all journals alike, and say what a reader has to know of it.

    Latencies become the mean of all runs in which a client answered, and groups those of speed.
    """
    for journal in journals:
        _check(journal)
    names = [journal.clients["identity"].tolist() for journal in journals]
    notes = [f"{_CLOCK}." if len(journals) == 1 else f"{_CLOCK}, and runs do not share their luck."]
    if not set(names[0]).intersection(*names[1:]):
        names = _by_speed(journals)
        notes.append(
            "The runs know their clients under different names: matched are those of equal rank in "
            "speed. Nodes with keys or a client-id would be known again."
        )
    everyone = list(dict.fromkeys(name for own in names for name in own))
    index = {name: place for place, name in enumerate(everyone)}
    places = [np.array([index[name] for name in own], dtype=np.int64) for own in names]
    elsewhere = len(everyone) - len(set(names[0]).intersection(*names[1:]))
    if elsewhere:
        notes.append(f"{elsewhere:,} of {len(everyone):,} clients were not in every run.")
    latency = _pooled_latency(journals, places, len(everyone))
    common = {
        "identity": np.array(everyone),
        "typical_latency_seconds": latency,
        "group": _speed_groups(latency),
    }
    if all("num_samples" in journal.clients for journal in journals):
        common["num_samples"] = _pooled_samples(journals, places, len(everyone))
    for journal, place in zip(journals, places, strict=True):
        _renumber(journal, place, len(everyone))
        journal.clients.pop("num_samples", None)
        journal.clients.update(common)
    return tuple(notes)


def _check(journal: JournalReader) -> None:
    needed = {"identity", "answered", "typical_latency_seconds", "cohort_size"}
    missing = needed - journal.clients.keys()
    if missing:
        raise StateError(
            f"{journal.path} is damaged: it does not hold {', '.join(sorted(missing))}"
        )
    num_clients = len(journal.clients["identity"])
    known = np.concatenate([*journal.cohorts, *journal.rejected])
    if len(known) and not 0 <= known.min() <= known.max() < num_clients:
        raise StateError(
            f"{journal.path} is damaged: it names a client that is not one of {num_clients}"
        )


def _by_speed(journals: Sequence[JournalReader]) -> list[list[str]]:
    """The names that clients have in the first run, given to those of equal rank in the others."""
    sizes = {len(journal.clients["identity"]) for journal in journals}
    if len(sizes) > 1:
        raise StateError(
            f"{journals[0].path} and others have no client in common, and not equally many: give "
            "the nodes keys, or a client-id in their node config, so that runs can be compared"
        )
    orders = [np.argsort(journal.clients["typical_latency_seconds"]) for journal in journals]
    first: list[str] = journals[0].clients["identity"][orders[0]].tolist()
    return [
        [first[rank] for rank in np.argsort(order).tolist()]  # the rank of each client
        for order in orders
    ]


def _pooled_latency(
    journals: Sequence[JournalReader], places: Sequence[IntArray], num_clients: int
) -> FloatArray:
    """Of whoever never answered what is usual."""
    total, count = np.zeros(num_clients), np.zeros(num_clients)
    for journal, place in zip(journals, places, strict=True):
        answered: BoolArray = journal.clients["answered"]
        total[place[answered]] += journal.clients["typical_latency_seconds"][answered]
        count[place[answered]] += 1
    if not count.any():
        return np.ones(num_clients)
    mean = total / np.maximum(count, 1)
    return np.where(count > 0, mean, np.median(mean[count > 0]))


def _pooled_samples(
    journals: Sequence[JournalReader], places: Sequence[IntArray], num_clients: int
) -> IntArray:
    """What each last said, run by run."""
    samples = np.zeros(num_clients, dtype=np.int64)
    for journal, place in zip(journals, places, strict=True):
        samples[place] = journal.clients["num_samples"]
    return samples


def _speed_groups(latency: FloatArray) -> IntArray:
    """At most ten of equal size, the fastest first."""
    rank = np.argsort(np.argsort(latency, kind="stable"))
    return rank * min(_MOST_GROUPS, len(latency)) // len(latency)


def _renumber(journal: JournalReader, place: IntArray, num_clients: int) -> None:
    journal.cohorts = [place[cohort] for cohort in journal.cohorts]
    journal.rejected = [place[clients] for clients in journal.rejected]
    answered = np.zeros(num_clients, dtype=np.bool_)
    answered[place] = journal.clients["answered"]
    journal.clients["answered"] = answered
    journal.clients["present"] = np.isin(np.arange(num_clients), place)
    watched = journal.clients.get("watched", np.arange(len(place)))
    for name, values in journal.scores.items():
        journal.scores[name] = np.full((len(values), num_clients), np.nan)
        journal.scores[name][:, place[watched]] = values
    journal.clients["watched"] = np.arange(num_clients)
