"""The ledger that runs debit: debit first, then ask.

A debit is checked and written in one transaction that is on disk before any client is asked.
Budgets follow a client's identity over all runs that use the ledger.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Self, TypedDict, Unpack

import numpy as np

from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.errors import BudgetError, DataError, LedgerError
from fedmuster.core.records import is_integer
from fedmuster.privacy.ledger.chain import ChainHead, LedgerKind, digest_of_identities, plain_errors
from fedmuster.privacy.ledger.guards import check_contains
from fedmuster.privacy.ledger.log import LedgerLog, signing_key
from fedmuster.privacy.ledger.notes import SigningKey
from fedmuster.privacy.ledger.receipts import Receipt
from fedmuster.privacy.ledger.verification import require_sound
from fedmuster.privacy.ledger.writer import Clock, Writer, create_if_missing
from fedmuster.privacy.schedules import MOST_UNITS, to_amount

_LONGEST_NAME: Final = 200
_NAMED: Final = 5  # clients that a message names


class Balances(NamedTuple):
    """The balances of accounts, int64[n] each: what they spent, how often, and their caps."""

    spent_units: IntArray
    debits: IntArray
    cap_units: IntArray


class Debit(NamedTuple):
    """What is on record for a cohort.

    ``fresh`` is bool[n], False for a debit that had been on record before; ``units`` is int64[n],
    what each account has paid for this round.
    """

    fresh: BoolArray
    units: IntArray


class _OfRound(TypedDict):
    """The keyword ``round``, as everywhere here, without hiding the builtin in the function."""

    round: int


class Ledger(AbstractContextManager["Ledger"]):
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
        self._chain = writer.chain
        self._exclusive_for = exclusive_for
        self.path, self._database, self.info = writer.chain
        self._log: LedgerLog | None = None  # read when the first receipt is asked for
        self._key: SigningKey

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        currency: str,
        kind: LedgerKind,
        exclusive_for: str | None = None,
        thorough: bool = True,
        clock: Clock = time.time_ns,
    ) -> Self:
        """Open the ledger ``path`` for debits; a new one if there is none and never was one.

        Args:
            path: of the file; its folder must be there.
            currency: the key of what it counts; an existing ledger must have the same.
            kind: ``real``, or ``simulated`` for clients that exist in a simulation only.
            exclusive_for: the id of a run that wants to be the only writer. Without it any
                number of processes may write in turns.
            thorough: whether to compute every digest and balance anew, which takes seconds for a
                million entries; else only the newest entries are checked, and an old balance that
                somebody made smaller goes unnoticed.
            clock: nanoseconds since 1970.
        """
        if exclusive_for is not None:
            _check_name("open: exclusive_for", exclusive_for)
        _check_name("open: currency", currency)
        path = path.resolve()
        create_if_missing(path, currency=currency, kind=kind, now_us=clock() // 1000)
        writer = Writer(path, exclusive_for=exclusive_for, clock=clock)
        try:
            for what, found, wanted in (
                ("kind", writer.chain.info.kind, kind),
                ("currency", writer.chain.info.currency, currency),
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

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other runs use the ledger."""
        self._writer.close()

    @property
    def head(self) -> ChainHead:
        """The newest entry."""
        with plain_errors(self.path):
            return self._chain.last().head

    def require(self, head: ChainHead) -> None:
        """Refuse a ledger without ``head`` in its chain: it is an old copy, or another ledger."""
        with plain_errors(self.path):
            check_contains(self._chain, head, source="the run")

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
            places, known, caps = self._chain.accounts_of(names).T
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
        """The balances of these accounts, in order."""
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
            run_entry = self._chain.run_number(run)
            recorded = self._chain.debits_of_round(run_entry or 0, number)
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

    def receipts(
        self,
        *,
        run: str,
        accounts: IntArray,
        held: Mapping[int, Sequence[int]] | None = None,
        **key: Unpack[_OfRound],
    ) -> list[Receipt]:
        """A signed receipt for each account that has paid for a round, in order.

        Args:
            run: its id.
            round: its round, >= 1.
            accounts: int64[n].
            held: by account, the sizes of the logs whose receipts its client may hold, so that the
                new receipt leads on from them.
        """
        with plain_errors(self.path):
            if self._log is None:
                self._key = signing_key(self.path, self.info)
                self._log = LedgerLog(self._chain)
            number = int(key["round"])
            return self._log.receipts(run, number, accounts, key=self._key, held=held or {})

    def debits_of(self, run: str, *, after_round: int) -> tuple[IntArray, IntArray]:
        """Accounts and units of the run's debits in rounds after ``after_round``, by round."""
        with plain_errors(self.path):
            accounts, units = self._chain.integers(
                "SELECT account, units FROM entries "
                "WHERE kind = 'debit' AND run = ? AND round > ? ORDER BY round, account",
                self._chain.run_number(run) or 0,
                int(after_round),
                width=2,
            ).T.copy()
        return accounts, units

    def _balances(self, accounts: IntArray) -> Balances:
        found = self._chain.integers(
            "SELECT account, spent_units, debits, cap_units FROM json_each(?) AS wanted "
            "JOIN accounts ON account = wanted.value",
            json.dumps(accounts.tolist()),
            width=4,
        )
        found = found[np.argsort(found[:, 0])]
        if len(found) < len(accounts):
            unknown = accounts[~np.isin(accounts, found[:, 0])]
            raise DataError(
                f"{self.path} has no account {unknown[0]} (nor {len(unknown) - 1:,} others): "
                "register its client first"
            )
        return Balances(*found[np.searchsorted(found[:, 0], accounts), 1:].T.copy())

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
        find = "SELECT identity FROM accounts WHERE account = ?"
        lines = []
        for row in over[:_NAMED].tolist():
            (identity,) = self._database.execute(find, (int(accounts[row]),)).fetchone()
            spent, _, cap = (self._say(values[row]) for values in balances)
            lines.append(f"{identity}: spent {spent} of {cap}, wanted {self._say(units[row])}")
        more = f"; and {len(over) - _NAMED:,} more" if len(over) > _NAMED else ""
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
