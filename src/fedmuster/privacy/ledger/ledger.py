"""Who has spent how much privacy, durably: debit first, then ask.

A debit is checked and written in one transaction that is on disk before anybody is asked. Budgets
follow a client's identity over all runs that use the ledger.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

import numpy as np

from fedmuster.core.errors import BudgetError, DataError, LedgerError
from fedmuster.core.records import BoolArray, IntArray, is_integer
from fedmuster.privacy.ledger.chain import (
    Head,
    LedgerKind,
    accounts_of,
    balances_of,
    debits_of_round,
    digest_of_identities,
    identities_of,
    integer_table,
    last_entry,
    run_number,
)
from fedmuster.privacy.ledger.guards import check_contains
from fedmuster.privacy.ledger.schema import plain_errors
from fedmuster.privacy.ledger.verification import require_sound
from fedmuster.privacy.ledger.writer import Clock, Writer, create_if_missing
from fedmuster.privacy.schedules import MOST_UNITS, Currency, to_amount

_LONGEST_NAME: Final = 200
_NAMED: Final = 5  # clients that a message names


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Balances:
    """How accounts stand: int64[n] each.

    Args:
        spent_units: the sum of their debits.
        debits: how many those are, over all runs.
        cap_units: what they may spend in all.
    """

    spent_units: IntArray
    debits: IntArray
    cap_units: IntArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Debit:
    """What is on record for a cohort.

    Args:
        fresh: bool[n], False for a debit that had been on record before.
        units: int64[n], what each of them has paid for this round.
    """

    fresh: BoolArray
    units: IntArray


class _OfRound(TypedDict):
    """The keyword ``round``, as everywhere here, without hiding the builtin in the function."""

    round: int


class Ledger:
    """A ledger that may be written to; :meth:`open` makes one.

    Example:
        >>> import numpy as np, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name) / "ledger.sqlite"
        >>> with Ledger.open(path, currency="epsilon", kind="simulated") as ledger:
        ...     accounts = ledger.register(["ann", "bob"], cap_units=1_000)
        ...     pay = {"accounts": accounts, "units": np.array([300, 400])}
        ...     ledger.debit(run="r1", round=1, **pay).fresh
        ...     ledger.debit(run="r1", round=1, **pay).fresh  # on record: not paid again
        ...     ledger.balances(accounts).spent_units
        array([ True,  True])
        array([False, False])
        array([300, 400])
        >>> folder.cleanup()
    """

    def __init__(self, writer: Writer, *, exclusive_for: str | None) -> None:
        self._writer = writer
        self._database = writer.database
        self._exclusive_for = exclusive_for
        self.path = writer.path
        self.info = writer.info

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        currency: Currency,
        kind: LedgerKind,
        exclusive_for: str | None = None,
        thorough: bool = True,
        clock: Clock = time.time_ns,
    ) -> Self:
        """Open the ledger ``path`` for debits; a new one if there is none and never was one.

        Args:
            path: of the file; its folder must be there.
            currency: what it counts; another than that of an existing ledger is refused.
            kind: ``real``, or ``simulated`` for clients that exist in a simulation only.
            exclusive_for: the id of a run that wants to be the only writer. Without it any
                number of processes may write in turns.
            thorough: whether to compute every digest and balance anew, which takes seconds for a
                million entries; else only the newest entries are checked, and who made an old
                balance smaller goes unnoticed.
            clock: nanoseconds since 1970.
        """
        if exclusive_for is not None:
            _check_name("open: exclusive_for", exclusive_for)
        path = path.resolve()
        create_if_missing(path, currency=currency, kind=kind, now_us=clock() // 1000)
        writer = Writer(path, exclusive_for=exclusive_for, clock=clock)
        try:
            for what, found, wanted in (
                ("kind", writer.info.kind, kind),
                ("currency", writer.info.currency, currency),
            ):
                if found != wanted:
                    raise LedgerError(
                        f"{path} has the {what} {found!r}, expected {wanted!r}: use another ledger"
                    )
            writer.check()
            if thorough:
                require_sound(path)
        except BaseException:
            writer.close()
            raise
        return cls(writer, exclusive_for=exclusive_for)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others use it."""
        self._writer.close()

    @property
    def head(self) -> Head:
        """The newest entry."""
        with plain_errors(self.path):
            last = last_entry(self._database, self.info)
        return Head(last.sequence, last.digest.hex())

    def require(self, head: Head) -> None:
        """Complain unless ``head`` is in this ledger's chain: it would be old, or another one."""
        with plain_errors(self.path):
            check_contains(self.path, self._database, self.info, head, source="the run")

    def register(self, identities: Sequence[str], cap_units: int) -> IntArray:
        """int64[n], the accounts of known and new clients, in order.

        A client that is known must have the same cap.
        """
        names = list(identities)
        for name in names:
            _check_name("register: an identity", name)
        if len(set(names)) < len(names):
            raise DataError(f"register: {len(names) - len(set(names)):,} identities come twice")
        if not is_integer(cap_units, least=0) or cap_units > MOST_UNITS:
            raise DataError(f"register: cap_units is {cap_units!r}, expected 0 … {MOST_UNITS:,}")
        with self._writer.transaction() as links:
            places, known, caps = accounts_of(self._database, names).T
            if (different := caps != cap_units).any():
                first = int(np.flatnonzero(different)[0])
                raise LedgerError(
                    f"{self.path}: {names[places[first]]} has the cap {self._say(caps[first])}, "
                    f"not {self._say(cap_units)} (and so {different.sum() - 1:,} others); a cap is "
                    "promised once and for all: use it, or another ledger"
                )
            accounts = np.zeros(len(names), dtype=np.int64)
            accounts[places] = known
            new = np.flatnonzero(accounts == 0)
            if len(new) > 0:
                (most,) = self._database.execute(
                    "SELECT coalesce(max(account), 0) FROM accounts"
                ).fetchone()
                accounts[new] = np.arange(most + 1, most + 1 + len(new))
                newcomers = [names[place] for place in new]
                self._database.executemany(
                    "INSERT INTO accounts VALUES (?, ?, ?, 0, 0)",
                    (
                        (account, name, int(cap_units))
                        for account, name in zip(accounts[new].tolist(), newcomers, strict=True)
                    ),
                )
                links.add(
                    "accounts",
                    account=most + 1,
                    clients=len(new),
                    units=int(cap_units),
                    text=digest_of_identities(newcomers),
                )
        return accounts

    def balances(self, accounts: IntArray) -> Balances:
        """How these accounts stand."""
        with plain_errors(self.path):
            return self._balances(_integers("balances: accounts", accounts))

    def debit(
        self, *, run: str, accounts: IntArray, units: IntArray, **key: Unpack[_OfRound]
    ) -> Debit:
        """Let accounts pay for a round of a run: all of them, on disk, or none.

        What is on record for (account, run, round) is not paid again, whatever ``units`` says.

        Args:
            run: its id.
            round: its round, >= 1.
            accounts: int64[n], each once.
            units: int64[n], what each of them pays, > 0.
        """
        accounts, units = self._checked(run, key["round"], accounts, units)
        number = int(key["round"])
        with self._writer.transaction() as links:
            run_entry = run_number(self._database, run)
            recorded = debits_of_round(self._database, run_entry or 0, number)
            fresh = ~np.isin(accounts, recorded[:, 0])
            order = np.flatnonzero(fresh)[np.argsort(accounts[fresh])]  # as they lie in the file
            payers, amounts = accounts[order], units[order]
            self._check_budgets(payers, amounts)
            if len(payers) > 0 and run_entry is None:
                run_entry = links.add("run", text=run)
            for account, amount in zip(payers.tolist(), amounts.tolist(), strict=True):
                links.add(
                    "debit", run=run_entry or 0, in_round=number, account=account, units=amount
                )
            self._database.executemany(
                "UPDATE accounts SET spent_units = spent_units + ?, debits = debits + 1 "
                "WHERE account = ?",
                zip(amounts.tolist(), payers.tolist(), strict=True),
            )
        on_record = units.copy()
        before = np.searchsorted(recorded[:, 0], accounts[~fresh])
        on_record[~fresh] = recorded[before, 1]
        return Debit(fresh=fresh, units=on_record)

    def debits_of(self, run: str, *, after_round: int) -> tuple[IntArray, IntArray]:
        """Accounts and units of the run's debits in rounds after ``after_round``, by round."""
        with plain_errors(self.path):
            rows = self._database.execute(
                "SELECT account, units FROM entries "
                "WHERE kind = 'debit' AND run = ? AND round > ? ORDER BY round, account",
                (run_number(self._database, run) or 0, int(after_round)),
            )
            accounts, units = integer_table(rows, width=2).T.copy()
        return accounts, units

    def _balances(self, accounts: IntArray) -> Balances:
        found = balances_of(self._database, accounts)
        found = found[np.argsort(found[:, 0])]
        if len(found) < len(accounts):
            unknown = accounts[~np.isin(accounts, found[:, 0])]
            raise DataError(
                f"{self.path} has no account {unknown[0]} (nor {len(unknown) - 1:,} others): "
                "register its client first"
            )
        _, spent, debits, caps = found[np.searchsorted(found[:, 0], accounts)].T.copy()
        return Balances(spent_units=spent, debits=debits, cap_units=caps)

    def _checked(
        self, run: str, number: int, accounts: IntArray, units: IntArray
    ) -> tuple[IntArray, IntArray]:
        _check_name("debit: run", run)
        if self._exclusive_for not in (None, run):
            raise LedgerError(f"{self.path} is open for run {self._exclusive_for!r}, not {run!r}")
        if not is_integer(number, least=1):
            raise DataError(f"debit: round is {number!r}, expected an integer >= 1")
        accounts, units = _integers("debit: accounts", accounts), _integers("debit: units", units)
        if len(units) != len(accounts):
            raise DataError(f"debit: {len(units)} units for {len(accounts)} accounts")
        ordered = np.sort(accounts)
        if (twice := ordered[1:] == ordered[:-1]).any():
            raise DataError(f"debit: account {ordered[1:][twice][0]} comes twice in one round")
        if len(units) > 0 and units.min() <= 0:
            raise DataError(f"debit: {units.min()} units, expected > 0 (an exhausted client?)")
        return accounts, units

    def _check_budgets(self, accounts: IntArray, units: IntArray) -> None:
        balances = self._balances(accounts)
        # Not spent + units > cap, which could overflow.
        over = np.flatnonzero(units > balances.cap_units - balances.spent_units)
        if len(over) == 0:
            return
        named = over[:_NAMED]
        lines = [
            f"{identity}: spent {self._say(spent)} of {self._say(cap)}, wanted {self._say(wanted)}"
            for identity, spent, cap, wanted in zip(
                identities_of(self._database, accounts[named]),
                balances.spent_units[named],
                balances.cap_units[named],
                units[named],
                strict=True,
            )
        ]
        more = f"; and {len(over) - len(named):,} more" if len(over) > len(named) else ""
        raise BudgetError(
            f"{self.path}: {len(over):,} of {len(accounts):,} clients cannot pay, so nobody has: "
            + "; ".join(lines)
            + more
        )

    def _say(self, units: int) -> str:
        return f"{to_amount(int(units)):.9g} {self.info.currency}"


def _integers(what: str, values: IntArray) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size > 0 and not np.issubdtype(array.dtype, np.integer)):
        raise DataError(f"{what} must be a list of integers, got {array.dtype}{array.shape}")
    return array.astype(np.int64)


def _check_name(what: str, name: str) -> None:
    fits = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()
    if not fits:
        raise DataError(f"{what} is {name!r}, expected 1 … {_LONGEST_NAME} printable characters")
