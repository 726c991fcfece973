"""The privacy budgets of a run's clients.

The order is the promise: check and debit in the ledger, and only when that is on disk ask the
client. So every client that was asked has paid, also if it never answered, and a crash at any
moment can lose work but no debit.
"""

import json
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError, LedgerError, StateError
from fedmuster.core.streams import PRIVACY, stream
from fedmuster.privacy.ledger import ChainHead, Ledger
from fedmuster.privacy.mechanisms import Laplace, Mechanism, require_own_currency
from fedmuster.privacy.randomness import RandomBytes, secure_bytes, seeded_bytes
from fedmuster.privacy.schedules import (
    UNITS_PER_ONE,
    Geometric,
    Schedule,
    to_amount,
    to_units,
    units_of_next,
)

Noise = Literal["seeded", "secure"]

_MOST_GIVEN = 4
"""Receipts of which no answer tells whether the client has them; the next leads on from each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Privacy:
    """What every client is promised, and how it is kept: ``[privacy]`` of an experiment.

    Args:
        epsilon: ε_bar, which no client ever spends more than, over all runs on the same ledger;
            it holds together with the mechanism's δ, if that has one.
        schedule: how much of it a client spends the i-th time it is asked.
        mechanism: how updates are clipped and made noisy.
        noise: ``seeded`` repeats, for simulations, and protects nobody; ``secure`` comes from the
            operating system, and no round is ever released twice. None is ``seeded`` in an
            experiment, whose clients exist in a simulation only, and ``secure`` everywhere else.
        ledger: the file that remembers what each client has spent; None for one in each run's own
            folder, so that compared runs do not spend each other's budgets.
    """

    epsilon: float = 10.0
    schedule: Schedule = field(default_factory=Geometric)
    mechanism: Mechanism = field(default_factory=Laplace)
    noise: Noise | None = None
    ledger: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require_own_currency(self.mechanism)
        fits = 0 < self.epsilon <= 1e6 and to_units(self.cap) >= 1
        require(fits, self, "epsilon", "a number from 1e-9 (a unit of the ledger) to a million")

    @property
    def cap(self) -> float:
        """ε_bar in the mechanism's currency."""
        return self.mechanism.cap(self.epsilon)

    @property
    def simulated(self) -> bool:
        """Whether the noise is seeded, which protects no client."""
        return self.noise == "seeded"

    def settled(self, noise: Noise) -> Self:
        """These promises; if they leave the noise open, it is ``noise``."""
        return self if self.noise is not None else replace(self, noise=noise)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyRow:
    """What clients have spent after a round, in the ledger's currency; NaN without a ledger.

    ``num_exhausted`` is how many clients can never be asked again.
    """

    spent_max: float = np.nan
    spent_mean: float = np.nan
    num_exhausted: int = 0


class Grant(NamedTuple):
    """A debit that is on disk: these clients may be asked.

    ``releasable`` is False for a client whose debit was found from before a crash and whose
    noise cannot be repeated: what it sent then may be out, so it must not send again. ``unsent``
    are the clients that may still send; nobody may once it is empty.
    """

    round: int
    clients: IntArray
    amounts: FloatArray
    releasable: BoolArray
    unsent: set[int]


class Budget:
    """The privacy of the clients of one run.

    Args:
        privacy: the promise.
        path: of the ledger.
        run: the run's id, under which its debits are on record.
        identities: of the clients; a client that comes back is known by it.
        seed: of simulated noise.
    """

    def __init__(
        self, privacy: Privacy, path: Path, *, run: str, identities: Sequence[str], seed: int
    ) -> None:
        self.privacy = privacy
        self._run = run
        self._seed = seed
        self._cap_units = to_units(privacy.cap)
        everyone = len(identities)
        self._spent, self._count, self._next_units = np.zeros((3, everyone), dtype=np.int64)
        self.able: BoolArray = np.ones(everyone, dtype=np.bool_)
        """bool[K], the clients that can be asked once more."""
        self.left: FloatArray = np.ones(everyone)
        """[K], the share of the budget that each client has left (PAUSE Eq. 7)."""
        self._given: dict[int, deque[int]] = {}  # sizes of the log in receipts, by client
        self._replayed_until: int | None = None  # a round, where rounds are played again
        self._ledger = Ledger.open(
            path,
            currency=privacy.mechanism.currency.key,
            kind="simulated" if privacy.simulated else "real",
            exclusive_for=run,
        )
        try:
            self._accounts = self._ledger.register(identities, self._cap_units)
            self._read_balances()
        except BaseException:
            self._ledger.close()
            raise

    def ending(self, *, cohort_size: int, num_edges: int = 0) -> str | None:
        """Why privacy ends the run: too few clients can be asked once more; None while it goes on.

        At edge servers the cohort size is a limit and no aim, so one client is enough there.
        """
        able, clients = int(np.count_nonzero(self.able)), len(self.able)
        if able >= (1 if num_edges > 0 else min(cohort_size, clients)):
            return None
        cohort = "one" if num_edges > 0 else f"a cohort of {cohort_size:,}"
        return (
            f"privacy ends the run: {able:,} of {clients:,} clients have budget left, "
            f"fewer than {cohort}"
        )

    def join(self, identities: Sequence[str]) -> None:
        """Let new clients join, in order, behind those that are there; their accounts are on disk.

        A client that the ledger knows, from other runs or from before a crash, keeps its balance.
        """
        newcomers = self._ledger.register(identities, self._cap_units)
        twice = np.flatnonzero(np.isin(newcomers, self._accounts))
        if len(twice) > 0:
            raise DataError(f"join: {identities[twice[0]]!r} is a client of this run already")
        first, count = len(self._accounts), len(newcomers)
        self._accounts = np.concatenate([self._accounts, newcomers])
        self._spent, self._count, self._next_units = (
            np.concatenate([values, np.zeros(count, dtype=np.int64)])
            for values in (self._spent, self._count, self._next_units)
        )
        self.able = np.concatenate([self.able, np.ones(count, dtype=np.bool_)])
        self.left = np.concatenate([self.left, np.ones(count)])
        self._read_balances(slice(first, None))
        if self._replayed_until is not None:
            self._wind_back(self._replayed_until, first=first)

    def debited(self, round_: int) -> IntArray:
        """int64[n], increasing: the clients that paid for this round, also before a crash.

        With secure noise they must not be asked for it again: what they sent may be out. A client
        that joined in that round is among them once it has joined again.
        """
        since, _ = self._ledger.debits_of(self._run, after_round=round_ - 1)
        later, _ = self._ledger.debits_of(self._run, after_round=round_)
        return np.sort(self._clients_of(since[: len(since) - len(later)]))  # they come by round

    def debit(self, round_: int, clients: IntArray) -> Grant:
        """Let these clients pay for this round, durably, or fail before any client is asked.

        A round that is played again after a crash finds its debits: they are not repeated.
        """
        debit = self._ledger.debit(
            run=self._run,
            round=round_,
            accounts=self._accounts[clients],
            units=self._next_units[clients],
        )
        if self._replayed_until is None:
            self._read_balances(clients)
        else:
            # What is found counts now, for the run was wound back behind it; but only once.
            counted = debit.fresh | (round_ > self._replayed_until)
            self._spent[clients] += debit.units * counted
            self._count[clients] += counted
            self._replayed_until = max(round_, self._replayed_until)
            self._update(clients)
        releasable = debit.fresh | (self._replayed_until is not None)
        amounts, unsent = debit.units / UNITS_PER_ONE, set(clients[releasable].tolist())
        return Grant(round_, clients, amounts, releasable, unsent)

    def receipts(self, grant: Grant, held: Callable[[int], Collection[int]]) -> dict[int, str]:
        """The ledger's receipt, as JSON, for each client that a grant lets send.

        Args:
            grant: of :meth:`debit`; with seeded noise there are no clients to get receipts.
            held: by client, the sizes of the ledger's log in receipts that it may hold. Those that
                it was given since by this budget are known here.
        """
        if self.privacy.simulated:
            return {}
        clients = grant.clients[grant.releasable]
        accounts = self._accounts[clients].tolist()
        given = [
            self._given.setdefault(client, deque(maxlen=_MOST_GIVEN)) for client in clients.tolist()
        ]
        sizes = {
            account: sorted({*held(client), *before})
            for account, client, before in zip(accounts, clients.tolist(), given, strict=True)
        }
        receipts = self._ledger.receipts(
            run=self._run, round=grant.round, accounts=self._accounts[clients], held=sizes
        )
        for before in given:
            before.append(receipts[0].state.size)  # one checkpoint for all
        return {
            client: receipt.to_json()
            for client, receipt in zip(clients.tolist(), receipts, strict=True)
        }

    def release(
        self, grant: Grant, clients: IntArray, updates: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """What the server receives of ``clients``: [n, d], clipped and noisy.

        Only for clients that the grant lets send, and with secure noise only once.
        """
        if not grant.unsent.issuperset(clients.tolist()):
            raise StateError(
                f"release: of round {grant.round}, in which a client has not paid or may not send "
                "again; nothing was released"
            )
        if not self.privacy.simulated:
            grant.unsent.difference_update(clients.tolist())
        rows = np.searchsorted(grant.clients, clients)
        released = np.empty(updates.shape, dtype=np.float32)
        amounts = grant.amounts[rows].tolist()
        for row, (client, amount) in enumerate(zip(clients.tolist(), amounts, strict=True)):
            random_bytes = self._random_bytes(grant.round, client)
            released[row] = self.privacy.mechanism.release(updates[row], amount, random_bytes)
        return released

    def _random_bytes(self, round_: int, client: int) -> RandomBytes:
        if not self.privacy.simulated:
            return secure_bytes
        return seeded_bytes(stream(self._seed, PRIVACY, round_, client))

    def standing(self) -> PrivacyRow:
        """What has been spent so far."""
        if len(self._spent) == 0:  # a federation without clients so far
            return PrivacyRow(spent_max=0.0, spent_mean=0.0)
        return PrivacyRow(
            spent_max=to_amount(int(self._spent.max())),
            spent_mean=float(self._spent.mean()) / UNITS_PER_ONE,
            num_exhausted=int(np.count_nonzero(~self.able)),
        )

    def to_bytes(self) -> bytes:
        """Where the ledger stood. What was spent is in the ledger itself."""
        head, clients = self._ledger.head._asdict(), len(self._accounts)
        return json.dumps(
            {**head, "clients": clients, "spent": self._fingerprint(clients)}
        ).encode()

    def load(self, image: bytes, *, after_round: int) -> None:
        """Continue after a checkpoint: the ledger must hold all that it held then.

        The checkpoint's clients must be here, in the same order; clients that joined since may
        follow them.

        With simulated noise, rounds that were debited after it are played again. Not if clients
        have paid for other runs meanwhile, for those would not be the same rounds: then what was
        debited is lost, as it is with secure noise, and counts at once.
        """
        noted = json.loads(image)
        spent = noted.pop("spent")
        clients = noted.pop("clients", len(self._accounts))  # not noted before clients could join
        if clients > len(self._accounts):
            raise StateError(
                f"budget: the checkpoint is of {clients:,} clients, {len(self._accounts):,} came"
            )
        self._ledger.require(ChainHead(**noted))
        self._read_balances()
        self._replayed_until = None
        if self.privacy.simulated:
            self._wind_back(after_round)
            if self._fingerprint(clients) == spent:
                self._replayed_until = after_round
            else:
                self._read_balances()

    def close(self) -> None:
        """Let others use the ledger."""
        self._ledger.close()

    def _read_balances(self, clients: IntArray | slice = slice(None)) -> None:
        """What these clients have spent by now."""
        balances = self._ledger.balances(self._accounts[clients])
        self._spent[clients] = balances.spent_units
        self._count[clients] = balances.debits
        self._update(clients)

    def _wind_back(self, after_round: int, *, first: int = 0) -> None:
        """What everyone from ``first`` on had spent when that round of this run was over."""
        accounts, units = self._ledger.debits_of(self._run, after_round=after_round)
        theirs = np.isin(accounts, self._accounts[first:])
        clients = self._clients_of(accounts[theirs])
        np.subtract.at(self._spent, clients, units[theirs])
        np.subtract.at(self._count, clients, 1)
        self._update(np.unique(clients))

    def _clients_of(self, accounts: IntArray) -> IntArray:
        """The clients of these accounts, in order, without clients that are not here (yet)."""
        order = np.argsort(self._accounts)
        here = accounts[np.isin(accounts, self._accounts)]
        clients: IntArray = order[np.searchsorted(self._accounts, here, sorter=order)]
        return clients

    def _fingerprint(self, clients: int) -> str | None:
        """Of what the first ``clients`` have spent, and how often, where rounds may be repeated."""
        if not self.privacy.simulated:
            return None
        spent, count = self._spent[:clients], self._count[:clients]
        return sha256(spent.tobytes() + count.tobytes()).hexdigest()

    def _update(self, clients: IntArray | slice) -> None:
        spent = self._spent[clients]
        units = units_of_next(self.privacy.schedule, self._cap_units, self._count[clients])
        self._next_units[clients] = units
        self.able[clients] = (units > 0) & (spent + units <= self._cap_units)
        self.left[clients] = 1.0 - spent / self._cap_units  # PAUSE Eq. 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Protection:
    """Privacy for one run: the promise, the ledger that keeps it, and the run's name in there."""

    privacy: Privacy
    ledger: Path
    run: str

    def start(self, *, num_clients: int, seed: int) -> Budget:
        """Open the ledger; clients of a simulation are called by their number."""
        identities = [f"client-{number}" for number in range(num_clients)]
        privacy = self.privacy.settled("seeded")
        return Budget(privacy, self.ledger, run=self.run, identities=identities, seed=seed)


def require_ledger(path: Path) -> None:
    """Refuse to continue a run whose ledger is gone: a new one would give every budget back."""
    if not path.exists():
        raise LedgerError(
            f"{path} is gone, from which this run has debited: restore the newest copy"
        )
