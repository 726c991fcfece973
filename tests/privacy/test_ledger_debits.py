"""What a ledger lets clients pay, and what it refuses."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedmuster.core.errors import BudgetError, DataError, LedgerError
from fedmuster.core.records import IntArray
from fedmuster.privacy.ledger import ChainHead, Ledger, verify


def open_ledger(path: Path, **options: Any) -> Ledger:
    return Ledger.open(path, currency="epsilon", kind="simulated", **options)


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_debits_add_up_over_runs_and_reopening(path: Path) -> None:
    with open_ledger(path) as ledger:
        ann, bob, eve = accounts = ledger.register(["ann", "bob", "eve"], 1_000)
        debit = ledger.debit(run="a", round=1, accounts=ints(eve, ann), units=ints(10, 20))
        assert debit.fresh.tolist() == [True, True]
        assert debit.units.tolist() == [10, 20]
    with open_ledger(path) as ledger:
        ledger.debit(run="b", round=1, accounts=ints(ann), units=ints(30))
        ledger.debit(run="a", round=2, accounts=ints(ann, bob), units=ints(1, 2))
        balances = ledger.balances(accounts[::-1])
        assert balances.spent_units.tolist() == [10, 2, 51]
        assert balances.debits.tolist() == [1, 1, 3]
        assert balances.cap_units.tolist() == [1_000] * 3
    assert verify(path).faults == []


def test_what_is_on_record_is_not_paid_again(path: Path) -> None:
    with open_ledger(path) as ledger:
        ann, bob, eve = accounts = ledger.register(["ann", "bob", "eve"], 100)
        ledger.debit(run="a", round=3, accounts=ints(eve, ann), units=ints(90, 10))
        head = ledger.head
        again = ledger.debit(run="a", round=3, accounts=ints(ann, eve), units=ints(99, 99))
        assert again.fresh.tolist() == [False, False]
        assert again.units.tolist() == [10, 90]
        assert ledger.head == head
        partly = ledger.debit(run="a", round=3, accounts=ints(eve, bob, ann), units=ints(5, 6, 7))
        assert partly.fresh.tolist() == [False, True, False]
        assert partly.units.tolist() == [90, 6, 10]
        assert ledger.balances(accounts).spent_units.tolist() == [10, 6, 90]


def test_all_pay_or_nobody_does(path: Path) -> None:
    with open_ledger(path) as ledger:
        accounts = ledger.register(["ann", "bob"], 2_000_000_000)
        ledger.debit(run="a", round=1, accounts=accounts, units=ints(1_900_000_000, 1))
        head = ledger.head
        with pytest.raises(BudgetError) as error:
            ledger.debit(run="a", round=2, accounts=accounts, units=ints(100_000_001, 1))
        message = str(error.value)
        assert "1 of 2 clients cannot pay, so nobody has" in message
        assert "ann: spent 1.9 epsilon of 2 epsilon, wanted 0.100000001 epsilon" in message
        assert ledger.head == head
        assert ledger.balances(accounts).spent_units.tolist() == [1_900_000_000, 1]
        # To the last unit, and not one more.
        ledger.debit(run="a", round=2, accounts=accounts, units=ints(100_000_000, 1))
        with pytest.raises(BudgetError):
            ledger.debit(run="a", round=3, accounts=accounts[:1], units=ints(1))
        with pytest.raises(BudgetError):  # without overflow
            ledger.debit(run="a", round=3, accounts=accounts[1:], units=ints(2**63 - 1))


def test_many_who_cannot_pay_are_counted(path: Path) -> None:
    with open_ledger(path) as ledger:
        accounts = ledger.register([f"client-{k}" for k in range(20)], 5)
        with pytest.raises(BudgetError, match=r"20 of 20 .* client-4: .*; and 15 more"):
            ledger.debit(run="a", round=1, accounts=accounts, units=np.full(20, 6))


def test_registering_again_finds_the_same_accounts(path: Path) -> None:
    with open_ledger(path) as ledger:
        first = ledger.register(["ann", "bob"], 100)
        head = ledger.head
        assert ledger.register(["bob", "ann"], 100).tolist() == first[::-1].tolist()
        assert ledger.head == head
        mixed = ledger.register(["zoë", "bob", "client 7 💡"], 100)
        assert mixed[1] == first[1]
        assert len({*first.tolist(), *mixed.tolist()}) == 4
        assert ledger.register([], 100).tolist() == []
    assert verify(path).faults == []


def test_a_cap_is_promised_once(path: Path) -> None:
    with open_ledger(path) as ledger:
        ledger.register(["ann", "bob"], 10**9)
        with pytest.raises(LedgerError, match=r"1.*2"):
            ledger.register(["eve", "bob"], 2 * 10**9)
        assert ledger.register(["eve"], 10**9).tolist() == [3]  # nothing of the above remained


def test_currency_and_kind_belong_to_the_ledger(path: Path) -> None:
    open_ledger(path).close()
    with pytest.raises(LedgerError, match=r"'epsilon'.*'rho'"):
        Ledger.open(path, currency="rho", kind="simulated")
    with pytest.raises(LedgerError, match=r"'simulated'.*'real'"):
        Ledger.open(path, currency="epsilon", kind="real")


@pytest.mark.parametrize(
    ("debit", "message"),
    [
        ({"units": ints(0, 1)}, "0 units, expected > 0"),
        ({"units": ints(-5, 1)}, "-5 units"),
        ({"units": ints(1)}, "1 units for 2 accounts"),
        ({"units": np.array([0.5, 0.5])}, "list of integers, got float64"),
        ({"accounts": ints(1, 1)}, "account 1 comes twice"),
        ({"accounts": ints(1, 9)}, "no account 9"),
        ({"accounts": ints(0, 1)}, "no account 0"),
        ({"accounts": ints(-1, 1)}, "no account -1"),
        ({"round": 0}, "round is 0"),
        ({"round": 1.0}, "round is 1.0"),
        ({"run": ""}, "run is ''"),
        ({"run": "a\tb"}, "run is 'a\\\\tb'"),
    ],
)
def test_nonsense_is_refused_whole(path: Path, debit: dict[str, Any], message: str) -> None:
    with open_ledger(path) as ledger:
        accounts = ledger.register(["ann", "bob"], 100)
        head = ledger.head
        good: dict[str, Any] = {"run": "a", "round": 1, "accounts": accounts, "units": ints(1, 1)}
        with pytest.raises(DataError, match=message):
            ledger.debit(**{**good, **debit})
        assert ledger.head == head
        ledger.debit(**good)


def test_nonsense_clients_are_refused(path: Path) -> None:
    with open_ledger(path) as ledger:
        with pytest.raises(DataError, match="1"):
            ledger.register(["ann", "bob", "ann"], 1)
        names: list[Any] = ["", "a\nb", "\ud800", 7]
        for name in names:
            with pytest.raises(DataError):
                ledger.register(["ann", name], 1)
        caps: list[Any] = [-1, 1.5, 10**18]
        for cap in caps:
            with pytest.raises(DataError, match="cap_units is"):
                ledger.register(["ann"], cap)


def test_debits_of_later_rounds(path: Path) -> None:
    with open_ledger(path) as ledger:
        accounts = ledger.register(["ann", "bob"], 100)
        for number in np.array([1, 2, 3]):  # whatever counts rounds
            ledger.debit(run="a", round=number, accounts=accounts, units=ints(number, 10 + number))
        ledger.debit(run="b", round=3, accounts=accounts, units=ints(50, 50))
        payers, units = ledger.debits_of("a", after_round=np.array([1])[0])
        assert payers.tolist() == [*accounts, *accounts]
        assert units.tolist() == [2, 12, 3, 13]
        assert [len(each) for each in ledger.debits_of("a", after_round=3)] == [0, 0]
        assert [len(each) for each in ledger.debits_of("nobody", after_round=0)] == [0, 0]


def test_an_empty_cohort_pays_nothing(path: Path) -> None:
    with open_ledger(path) as ledger:
        debit = ledger.debit(run="a", round=1, accounts=ints(), units=ints())
        assert len(debit.fresh) == 0
        assert ledger.head.sequence == 0


def test_a_head_is_required(path: Path, tmp_path: Path) -> None:
    with open_ledger(path) as ledger:
        heads = [ledger.head]
        accounts = ledger.register(["ann"], 100)
        for number in (1, 2):
            heads.append(ledger.head)
            ledger.debit(run="a", round=number, accounts=accounts, units=ints(1))
        for head in heads:
            ledger.require(head)
        sequence, digest = ledger.head
        with pytest.raises(LedgerError, match="5"):
            ledger.require(ChainHead(sequence + 5, digest))
        with pytest.raises(LedgerError):
            ledger.require(ChainHead(sequence - 1, digest))
    with open_ledger(tmp_path / "other") as other, pytest.raises(LedgerError):
        other.require(heads[0])


def test_a_ledger_for_one_run_takes_no_others_debits(path: Path) -> None:
    with open_ledger(path, exclusive_for="a") as ledger:
        accounts = ledger.register(["ann"], 100)
        with pytest.raises(LedgerError, match=r"'a'.*'b'"):
            ledger.debit(run="b", round=1, accounts=accounts, units=ints(1))


ORDERS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(1, 3),
        st.dictionaries(st.integers(0, 3), st.integers(1, 60), min_size=1),
    ),
    max_size=15,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(orders=ORDERS)
def test_like_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, orders: list[tuple[str, int, dict[int, int]]]
) -> None:
    path = tmp_path_factory.mktemp("model") / "ledger.sqlite"
    record: dict[tuple[str, int, int], int] = {}

    def spent(client: int) -> int:
        return sum(units for (_, _, payer), units in record.items() if payer == client)

    with open_ledger(path) as ledger:
        accounts = ledger.register([f"client-{k}" for k in range(4)], 100)
        for run, number, wanted in orders:
            clients, units = ints(*wanted), ints(*wanted.values())
            new = {k: v for k, v in wanted.items() if (run, number, k) not in record}
            order: dict[str, Any] = {"accounts": accounts[clients], "units": units}
            if any(spent(client) + amount > 100 for client, amount in new.items()):
                with pytest.raises(BudgetError):
                    ledger.debit(run=run, round=number, **order)
                continue
            debit = ledger.debit(run=run, round=number, **order)
            record.update({(run, number, client): amount for client, amount in new.items()})
            assert debit.fresh.tolist() == [client in new for client in wanted]
            assert debit.units.tolist() == [record[run, number, client] for client in wanted]
        balances = ledger.balances(accounts)
    assert balances.spent_units.tolist() == [spent(client) for client in range(4)]
    assert balances.debits.sum() == len(record)
    assert verify(path).faults == []


def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[-1]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["debit"].fresh.all()
    assert verify(tmp_path / "ledger.sqlite").debits == 2
