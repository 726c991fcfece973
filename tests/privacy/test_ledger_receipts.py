"""Receipts as they come from others: whatever was changed in one, it is refused without a crash."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.forgery import forge

from fedmuster.core.errors import DataError, FedmusterError, LedgerError
from fedmuster.privacy.ledger import Evidence, Ledger, Receipt, audit
from fedmuster.privacy.ledger.chain import reading
from fedmuster.privacy.ledger.evidence import read_receipt
from fedmuster.privacy.ledger.log import LedgerLog


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two receipts of a client, the second one leading on from the first."""
    folder = tmp_path_factory.mktemp("receipts")
    found, held = [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMUSTER_STATE", str(folder / "state"))
        with Ledger.open(folder / "l.sqlite", currency="rho", kind="real") as ledger:
            ledger.register(["x"], 7)
            accounts = ledger.register(["ann", "bob"], 1_000)
            for number in (1, 2):
                pay = {"accounts": accounts, "units": np.array([3, 5])}
                ledger.debit(run="a", round=number, **pay)
                (receipt, _) = ledger.receipts(
                    run="a", round=number, accounts=accounts, held={int(accounts[0]): [held]}
                )
                found.append(receipt.to_json())
                held = receipt.state.size
    return found[0], found[1]


def accepted(text: str, held: str) -> bool:
    """Whether a client with the receipt ``held`` accepts another."""
    try:
        receipt = Receipt.of_json(text)
        receipt.statement()
        receipt.require_follows(Receipt.of_json(held))
    except (DataError, LedgerError):
        return False
    return True


def test_a_receipt_says_who_paid_what(texts: tuple[str, str]) -> None:
    first, second = map(Receipt.of_json, texts)
    said = second.statement()
    assert (said.debit.account, said.debit.units, said.debit.round, said.run.text) == (2, 3, 2, "a")
    assert (said.cap_units, said.ledger.currency, said.ledger.kind) == (1_000, "rho", "real")
    assert (first.state.size, second.state.size) == (6, 8)
    assert accepted(texts[1], texts[0])
    assert not accepted(texts[0], texts[1])
    assert not accepted(texts[0], texts[0])
    assert Receipt.of_json(second.kept(12).to_json()) == second.kept(12)


@given(data=st.data())
@settings(max_examples=300)
def test_a_receipt_with_other_letters_says_nothing_else(
    texts: tuple[str, str], data: st.DataObject
) -> None:
    first, second = texts
    at = data.draw(st.integers(0, len(second) - 1))
    letters = data.draw(st.text(st.characters(codec="utf-8") | st.sampled_from(second), max_size=2))
    changed = second[:at] + letters + second[at + data.draw(st.integers(0, 3)) :]
    if accepted(changed, first):
        said = Receipt.of_json(changed)
        assert said.statement() == Receipt.of_json(second).statement()
        assert said.state == Receipt.of_json(second).state


_ODD: tuple[Any, ...] = (
    *(None, True, -1, 2**70, 1.5, "", "x", "\ud800", [], [[]], {}, "9" * 5_000, "A" * 50_000),
    *(
        ["", "", ""],
        [0, "x", ""],
        [0, "\ud800", ""],
        [1, "1\t" * 8, "A"],
        [[2**70, ""]],
        [[4, "ä"]],
    ),
)


@pytest.mark.parametrize(
    "part", ["title", "key", "checkpoint", "ledger", "accounts", "run", "debit", "since"]
)
def test_odd_parts_are_refused(texts: tuple[str, str], part: str) -> None:
    table = json.loads(texts[1])
    for odd in _ODD:
        assert not accepted(json.dumps(table | {part: odd}), texts[0]), odd
    lines = table["checkpoint"].split("\n")
    for place in range(len(lines)):
        for odd in ("", "x", "9" * 5_000, "\ud800", "— a b"):
            forged = "\n".join([*lines[:place], odd, *lines[place + 1 :]])
            if forged != table["checkpoint"]:
                assert not accepted(json.dumps(table | {"checkpoint": forged}), texts[0])


def test_files_that_hold_no_receipt_are_faults_and_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    path = tmp_path / "l.sqlite"
    with Ledger.open(path, currency="rho", kind="real") as ledger:
        ledger.register(["ann"], 7)
    for image in (b"", b"\x00" * 99, b"{}", b"[" * 99_999, b'{"receipt": 7}', b'{"title": "x"}'):
        file = tmp_path / "file"
        file.write_bytes(image)
        with pytest.raises(FedmusterError):
            read_receipt(file)
        evidence = Evidence(receipts=[file], checkpoints=[file])
        assert len(audit(path, evidence=evidence).faults) == 2
    with pytest.raises(LedgerError):
        audit(path, evidence=Evidence(receipts=[tmp_path / "missing"]))


def test_a_log_with_a_gap_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with Ledger.open(path, currency="rho", kind="simulated") as ledger:
        for name in ("ann", "bob", "cid"):
            ledger.register([name], 7)
    (tmp_path / "state").mkdir()
    forge(path, tmp_path / "state", "DELETE FROM entries WHERE sequence = 2")
    with reading(path) as chain, pytest.raises(LedgerError):
        LedgerLog(chain).checkpoint()
