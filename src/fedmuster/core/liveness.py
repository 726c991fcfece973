"""Keeps a federation alive: silent clients rest, and newcomers wait for their share of the places.

A client that leaves ``rest_after`` jobs in a row unanswered is silent. It rests for 1 round, for 2
after its next unanswered job, then for 4 and so on, at most for 64. One answer ends this. A round
that closes with all the answers that it wanted does not wait for the others, so they may be slow
rather than silent: such a miss counts a quarter.

After 20 jobs in a row of which no client answered one, only clients that answered their last job
are asked, as long as there are enough of them.

A newcomer is a client that joined after the first decision and has not answered yet. The places of
newcomers are at most the share ``newcomer_quota`` of all places, from the first round with
newcomers on.

No place stays empty for this. Where other clients are too few to fill all places, newcomers
above their quota fill them, and then resting clients; those with the fewest unanswered jobs first.
"""

from collections.abc import Mapping
from numbers import Real
from typing import Final

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.errors import DataError
from fedmuster.core.records import is_integer, shortened
from fedmuster.core.state import Array

REST_AFTER: Final = 5
NEWCOMER_QUOTA: Final = 0.2
LARGEST_REST_AFTER: Final = 1000
LONGEST_REST: Final = 64
"""Rounds. A client that comes back is asked again within this number of rounds."""
DROUGHT_JOBS: Final = 20
_MISS: Final = 4  # quarters
_MOST_MISSES: Final = 1 << 14  # fits int16


class Liveness:
    """Counts unanswered jobs, and says which clients a policy may choose.

    Args:
        num_clients: K.
        rest_after: the number of unanswered jobs in a row after which a client rests; 0 for never.
        newcomer_quota: the largest share of places for newcomers, in (0, 1]; 1 for no limit.

    Example:
        >>> liveness = Liveness(3, rest_after=1, newcomer_quota=0.2)
        >>> everyone, rng = np.ones(3, dtype=np.bool_), np.random.default_rng(0)
        >>> liveness.heard(np.array([0, 1]), np.array([True, False]), round_=1)
        >>> liveness.choosable(everyone, round_=2, places=2, rng=rng)
        array([ True, False,  True])
        >>> liveness.restrains(3)
        False
    """

    def __init__(
        self,
        num_clients: int,
        *,
        rest_after: int = REST_AFTER,
        newcomer_quota: float = NEWCOMER_QUOTA,
    ) -> None:
        if not is_integer(rest_after, least=0) or rest_after > LARGEST_REST_AFTER:
            raise DataError(
                f"rest_after is {shortened(rest_after)}, expected an integer from 0 to "
                f"{LARGEST_REST_AFTER:,} (0: clients never rest)"
            )
        fits = isinstance(newcomer_quota, Real) and not isinstance(newcomer_quota, bool)
        if not fits or not 0 < newcomer_quota <= 1:
            raise DataError(
                f"newcomer_quota is {newcomer_quota!r}, expected a share in (0, 1] (1: no limit)"
            )
        self.rest_after = int(rest_after)
        self.newcomer_quota = float(newcomer_quota)
        self._misses = np.zeros(num_clients, dtype=np.int16)  # in a row, in quarters
        self._rests_until: IntArray = np.zeros(num_clients, dtype=np.int64)
        # Clients that answered their last job. Known only while some client has misses, so that
        # there is nothing to save of a federation in which all clients answer.
        self._proven: BoolArray = np.zeros(num_clients, dtype=np.bool_)
        self._drought = 0  # jobs that ended without an answer since the last answer
        self._newcomers: BoolArray = np.zeros(num_clients, dtype=np.bool_)
        self._credit = 0.0  # places that newcomers have not used yet; below 0, used too early
        self._allowed = 0  # places for newcomers in the decision that is being made
        # These three follow from the arrays; without them a decision would read a million clients.
        self._last_rest = self._num_missing = self._num_newcomers = 0

    @property
    def newcomers(self) -> BoolArray:
        """bool[K], the clients that joined after the first decision and have not answered yet."""
        return self._newcomers

    @property
    def unusual_settings(self) -> dict[str, float]:
        """The settings that differ from the defaults, to be saved."""
        usual = {"rest_after": REST_AFTER, "newcomer_quota": NEWCOMER_QUOTA}
        told = {name: getattr(self, name) for name in usual}
        return {name: value for name, value in told.items() if value != usual[name]}

    def resting(self, round_: int) -> BoolArray:
        """bool[K], the silent clients that rest in this round."""
        return np.asarray(self._rests_until > round_)

    def restrains(self, round_: int) -> bool:
        """Whether some available clients may have to be kept from the policy."""
        return self._num_newcomers > 0 or self._last_rest > round_ or self._drought >= DROUGHT_JOBS

    def choosable(
        self, available: BoolArray, *, round_: int, places: int, rng: Generator
    ) -> BoolArray:
        """bool[K], the available clients that the policy may choose from.

        They fill at least ``places``, if as many are available. At edge servers, whose budgets
        decide how many places there are, ``places`` is 0, and :meth:`in_turn` says who comes next.
        """
        awake = available & ~self.resting(round_)
        new = awake & self._newcomers
        self._allowed = max(int(self._credit + self.newcomer_quota * places + 1e-9), 0)
        invited = self._fewest_misses(new, self._allowed, rng)
        settled = awake & ~new
        groups = [settled | invited, awake, available]
        if self._drought >= DROUGHT_JOBS:
            groups.insert(0, (settled & self._proven) | invited)
        return self._filled(groups, places, rng)

    def in_turn(self, clients: IntArray, *, round_: int, rng: Generator) -> IntArray:
        """Clients that were not choosable, those that fill empty places first in front."""
        rests = self.resting(round_)[clients]
        return clients[np.lexsort((rng.random(len(clients)), self._misses[clients], rests))]

    def _filled(self, groups: list[BoolArray], places: int, rng: Generator) -> BoolArray:
        """The first group; if it is too small, further clients of the next, and so on."""
        chosen = groups[0]
        for group in groups[1:]:
            missing = places - int(np.count_nonzero(chosen))
            if missing <= 0:
                break
            chosen = chosen | self._fewest_misses(group & ~chosen, missing, rng)
        return chosen

    def _fewest_misses(self, group: BoolArray, count: int, rng: Generator) -> BoolArray:
        """``count`` of the group, those with the fewest unanswered jobs; ties at random."""
        clients = np.flatnonzero(group)
        if len(clients) <= count:
            return group
        order = np.lexsort((rng.random(len(clients)), self._misses[clients]))
        some = np.zeros_like(group)
        some[clients[order[:count]]] = True
        return some

    def asked(self, clients: IntArray) -> None:
        """Note a decision: newcomers use places, and the others earn them some."""
        if self._num_newcomers == 0:
            return
        earned = self.newcomer_quota * len(clients)
        # Places that only newcomers could fill are not held against them.
        used = min(int(np.count_nonzero(self._newcomers[clients])), self._allowed)
        self._credit = min(self._credit + earned - used, max(1.0, earned))

    def heard(
        self, clients: IntArray, answered: BoolArray, *, round_: int, waited: bool = True
    ) -> None:
        """Note how jobs ended, in the round in which they did.

        ``waited`` says whether the server waited for all of them, until their deadline.
        """
        silent = clients[~answered]
        if self.rest_after > 0 and len(silent) > 0:
            self._drought += len(silent)
            self._num_missing += int(np.count_nonzero(self._misses[silent] == 0))
            before, enough = self._misses[silent].astype(np.int64), _MISS * self.rest_after
            misses = before + np.where((before >= enough) | waited, _MISS, 1)
            self._misses[silent], self._proven[silent] = np.minimum(misses, _MOST_MISSES), False
            beyond = (misses - enough) // _MISS
            rest = np.left_shift(1, np.clip(beyond, 0, LONGEST_REST.bit_length() - 1))
            self._rests_until[silent] = np.where(misses >= enough, round_ + 1 + rest, 0)
            self._last_rest = max(self._last_rest, int(self._rests_until[silent].max()))
        self.answered(clients[answered])

    def answered(self, clients: IntArray) -> None:
        """Note that clients answered, also where the answer came after the end of its round."""
        if len(clients) == 0:
            return
        self._drought = 0
        if self._num_missing > 0:
            self._num_missing -= int(np.count_nonzero(self._misses[clients]))
            self._misses[clients], self._rests_until[clients] = 0, 0
            self._proven[clients] = True
            if self._num_missing == 0:
                self._proven[:] = False
        if self._num_newcomers > 0:
            self._num_newcomers -= int(np.count_nonzero(self._newcomers[clients]))
            self._newcomers[clients] = False
            if self._num_newcomers == 0:
                self._credit = 0.0

    def join(self, count: int, *, newcomers: bool) -> None:
        """Let clients join, as newcomers or as part of the initial fleet."""
        for name, array in self._columns().items():
            setattr(self, name, np.pad(array, (0, count)))
        if newcomers and self.newcomer_quota < 1:
            self._newcomers[-count:] = True
            self._num_newcomers += count

    def _columns(self) -> dict[str, Array]:
        return {
            "_misses": self._misses,
            "_rests_until": self._rests_until,
            "_proven": self._proven,
            "_newcomers": self._newcomers,
        }

    def arrays(self) -> dict[str, Array]:
        """What is not as at first, to be saved."""
        told = {name.removeprefix("_"): array for name, array in self._columns().items()}
        told |= {"drought": np.array(self._drought), "credit": np.array(self._credit)}
        return {name: array for name, array in told.items() if array.any()}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        for name in self._columns():
            if (told := arrays.get(name.removeprefix("_"))) is not None:
                setattr(self, name, told.copy())
        self._drought = int(arrays.get("drought", 0))
        self._credit = float(arrays.get("credit", 0.0))
        self._last_rest = int(self._rests_until.max(initial=0))
        self._num_missing = int(np.count_nonzero(self._misses))
        self._num_newcomers = int(np.count_nonzero(self._newcomers))
