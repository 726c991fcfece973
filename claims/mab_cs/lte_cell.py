"""MAB-CS's cell and policies, and how long its rounds could have taken.

The references replay the rounds of a run: the same times and candidates, other choices.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from fedmuster import ElementWiseMABCS, ExtendedFedCS, FedCS, NaiveMABCS
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray, IntArray, RoundView
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.mab_cs.resources import requested
from fedmuster.solvers.schedule import finish_seconds, greedy_schedule
from fedmuster.worlds import LTECell

REQUEST_FRACTION: Final = 0.1
ALPHA: Final = 1000.0
BETA: Final = 50.0

FEDCS: Final = FedCS.name
EXTENDED: Final = ExtendedFedCS.name
NAIVE: Final = NaiveMABCS.name
ELEMENT_WISE: Final = ElementWiseMABCS.name
RIVALS: Final = (EXTENDED, NAIVE, ELEMENT_WISE)
"""Those whom the paper holds against FedCS."""

WIDEST: Final = 1.99
"""The largest eta of the paper."""


def naive(alpha: float = ALPHA) -> NaiveMABCS:
    """Naive MAB-CS, with the paper's share of candidates."""
    return NaiveMABCS(request_fraction=REQUEST_FRACTION, alpha=alpha)


def element_wise(beta: float = BETA) -> ElementWiseMABCS:
    """Element-wise MAB-CS, with the paper's share of candidates."""
    return ElementWiseMABCS(request_fraction=REQUEST_FRACTION, beta=beta)


def policies() -> dict[str, Policy[Any]]:
    """FedCS and the three others, as in section IV."""
    return {
        FEDCS: FedCS(request_fraction=REQUEST_FRACTION),
        EXTENDED: ExtendedFedCS(request_fraction=REQUEST_FRACTION),
        NAIVE: naive(),
        ELEMENT_WISE: element_wise(),
    }


def cell(eta: float | None) -> LTECell:
    """K = 100, S_round = 5; None for resources that do not fluctuate."""
    return LTECell(fluctuating=False) if eta is None else LTECell(eta=eta)


SETTING: Final = (
    f"the LTE cell of section IV, K = 100, C = {REQUEST_FRACTION:g}, S_round = 5, alpha = "
    f"{ALPHA:g}, beta = {BETA:g}"
)


_TIES = "mab-cs references"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rounds:
    """All that happened to the clients of one seed.

    Args:
        seed: of the world.
        size: S_round.
        update: [R, K], seconds to update the model.
        upload: [R, K], seconds to upload it, alone.
        asked: [R, n], the candidates of each round: the same for all policies.
    """

    seed: int
    size: int
    update: FloatArray
    upload: FloatArray
    asked: IntArray

    def of(self, clients: IntArray) -> tuple[FloatArray, FloatArray]:
        """[R, …] both times of the ``clients`` [R, …] of each round."""
        at = np.arange(len(clients)).reshape(-1, *(1,) * (clients.ndim - 1))
        return self.update[at, clients], self.upload[at, clients]


def replay(world: LTECell, *, seed: int, rounds: int, request_fraction: float) -> Rounds:
    """Draw the rounds of a world again."""
    run = world.start(seed)
    drawn = [run.realise(number) for number in range(1, rounds + 1)]
    asked = []
    for one in drawn:
        view = RoundView(round=one.round, cohort_size=world.cohort_size, available=one.available)
        rows = requested(view, request_fraction, stream(seed, POLICY, one.round))
        asked.append(np.arange(world.num_clients)[rows])
    return Rounds(
        seed=seed,
        size=world.cohort_size,
        update=np.stack([one.signals["compute_seconds"] for one in drawn]),
        upload=np.stack([one.signals["upload_seconds"] for one in drawn]),
        asked=np.stack(asked),
    )


def ready_first(update: FloatArray, upload: FloatArray) -> FloatArray:
    """[…], how long rounds of the cohorts [… , m] take if whoever is ready first uploads first.

    No order of their uploads is shorter: one machine, jobs with release times.

    Example:
        >>> ready_first(np.array([3.0, 1.0, 9.0]), np.array([2.0, 4.0, 1.0]))
        array(14.)
    """
    order = np.argsort(update, axis=-1)
    update = np.take_along_axis(update, order, axis=-1)
    upload = np.take_along_axis(upload, order, axis=-1)
    elapsed = np.zeros(update.shape[:-1])
    for place in range(update.shape[-1]):
        elapsed = np.maximum(elapsed, update[..., place]) + upload[..., place]  # Eq. 1
    return np.asarray(elapsed + upload.max(axis=-1))  # Eq. 2


def clairvoyant(rounds: Rounds) -> FloatArray:
    """[R], the shortest that any choice among the candidates could have taken."""
    update, upload = rounds.of(rounds.asked)
    cohorts = np.array(list(combinations(range(rounds.asked.shape[1]), rounds.size)))
    return np.array(
        [
            ready_first(updates[cohorts], uploads[cohorts]).min()
            for updates, uploads in zip(update, upload, strict=True)
        ]
    )


def knowing_means(rounds: Rounds) -> FloatArray:
    """[R], Algorithm 1 for who knows what each client takes on average, and not its luck."""
    update, upload = rounds.update.mean(axis=0), rounds.upload.mean(axis=0)
    return np.array(
        [_scheduled(rounds, number, update, upload)[1] for number in range(len(rounds.asked))]
    )


def zero_filled(rounds: Rounds, window: int = 5) -> FloatArray:
    """[R], Extended FedCS if its averages of five began with five times 0 s."""
    last = np.zeros((window, 2, rounds.update.shape[1]))
    count = np.zeros(rounds.update.shape[1], dtype=np.int64)
    seconds = []
    for number in range(len(rounds.asked)):
        clients, took = _scheduled(rounds, number, *last.mean(axis=0))
        seconds.append(took)
        place = count[clients] % window
        last[place, 0, clients] = rounds.update[number, clients]
        last[place, 1, clients] = rounds.upload[number, clients]
        count[clients] += 1
    return np.array(seconds)


def _scheduled(
    rounds: Rounds, number: int, update: FloatArray, upload: FloatArray
) -> tuple[IntArray, float]:
    """Whom Algorithm 1 takes if it thinks so of all clients, and how long that really took."""
    asked = rounds.asked[number]
    rng = stream(rounds.seed, _TIES, number)
    clients = asked[greedy_schedule(update[asked], upload[asked], rounds.size, rng)]
    real = finish_seconds(rounds.update[number, clients], rounds.upload[number, clients])
    return clients, float(real[-1])
