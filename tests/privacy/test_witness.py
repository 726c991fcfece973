"""Signed notes and witnesses: the published formats, and what a witness refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.errors import (
    DataError,
    FedmusterError,
    LedgerError,
    MissingExtraError,
    StateError,
)
from fedmuster.privacy.ledger import Ledger, VerifierKey, Witness, WitnessRequest
from fedmuster.privacy.ledger.log import checkpoint_request, public_key_file
from fedmuster.privacy.ledger.notes import Checkpoint, Note, SigningKey, witnessed_at

# The example of Go's golang.org/x/mod/sumdb/note, where the format comes from.
SECRET = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngot"
    "pRZb6KE6RyyBwJnAM=\n"
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    debit(path, 1)
    return path


def debit(path: Path, number: int) -> None:
    with Ledger.open(path, currency="epsilon", kind="real") as ledger:
        accounts = ledger.register(["ann", "bob"], 1_000)
        ledger.debit(run="a", round=number, accounts=accounts, units=np.array([1, 2]))
        ledger.receipts(run="a", round=number, accounts=accounts)  # makes the key


def key_in(tmp_path: Path, image: str) -> SigningKey:
    file = tmp_path / "some.key"
    file.touch(0o600)
    file.write_text(image)
    return SigningKey.load(file)


def test_notes_are_those_of_go(tmp_path: Path) -> None:
    key, note = VerifierKey.of(PUBLIC), Note.parse(NOTE)
    assert (str(key), str(note)) == (PUBLIC, NOTE)
    assert key.verifies(note)
    assert not key.verifies(note._replace(text=note.text.replace("your", "my")))
    signing = key_in(tmp_path, SECRET + "\n")
    assert str(signing.verifier) == PUBLIC
    assert str(Note(note.text, (signing.sign(note.text),))) == NOTE  # Ed25519 repeats itself


@given(at=st.integers(0, len(SECRET) - 1), letter=st.characters(codec="ascii"))
def test_a_changed_key_is_none(at: int, letter: str) -> None:
    changed = PUBLIC[:at] + letter + PUBLIC[at + 1 :] if at < len(PUBLIC) else PUBLIC + letter
    try:
        key = VerifierKey.of(changed)
    except DataError:
        return
    assert str(key) == changed.strip() == PUBLIC


@given(at=st.integers(0, len(NOTE) - 1), letter=st.characters())
def test_a_changed_note_is_not_signed(at: int, letter: str) -> None:
    changed = NOTE[:at] + letter + NOTE[at + 1 :]
    try:
        note = Note.parse(changed)
    except DataError:
        return
    assert changed == NOTE or not VerifierKey.of(PUBLIC).verifies(note)


@pytest.mark.parametrize("image", ["", "x", "PRIVATE+KEY+a+00000000+AAAA", SECRET[:-4], SECRET[1:]])
def test_a_damaged_private_key_is_refused(tmp_path: Path, image: str) -> None:
    with pytest.raises(FedmusterError):
        key_in(tmp_path, image)


@pytest.fixture
def witness(tmp_path: Path, path: Path) -> Witness:
    witness = Witness(tmp_path / "witness", name="example.org/w")
    witness.trust(VerifierKey.of(public_key_file(path).read_text()))
    return witness


def asked(path: Path, since: int) -> WitnessRequest:
    return WitnessRequest.parse(str(checkpoint_request(path, since=since)))


def test_a_witness_signs_what_adds(path: Path, witness: Witness, tmp_path: Path) -> None:
    first = witness.cosign(asked(path, 0))
    assert Checkpoint.of(first).size == 5
    assert witnessed_at(first, witness.verifier) is not None
    assert witness.cosign(asked(path, 5)).text == first.text  # nothing new
    debit(path, 2)
    again = Witness(tmp_path / "witness")  # after a restart
    second = again.cosign(asked(path, 5))
    assert Checkpoint.of(second).size == 7
    assert str(Note.parse(str(second))) == str(second)
    assert witnessed_at(second, VerifierKey.of(str(witness.verifier))) is not None
    forged = str(second).replace("example.org/w", "example.org/v")
    assert witnessed_at(Note.parse(forged), witness.verifier) is None


def test_what_a_witness_refuses(path: Path, witness: Witness, tmp_path: Path) -> None:
    first = asked(path, 0)
    witness.cosign(first)
    debit(path, 2)
    good = asked(path, 5)
    wrong = [
        asked(path, 0),  # does not lead on from what was signed
        good._replace(proof=good.proof[:-32]),
        good._replace(proof=b""),
        good._replace(note=good.note._replace(signatures=first.note.signatures)),
        good._replace(note=good.note._replace(text=good.note.text.replace("\n7\n", "\n8\n"))),
    ]
    for request in wrong:
        with pytest.raises(LedgerError):
            witness.cosign(request)
    witness.cosign(good)
    with pytest.raises(LedgerError):  # older than what was signed
        witness.cosign(first)
    with pytest.raises(LedgerError):  # a log that nobody has named
        Witness(tmp_path / "other").cosign(good)
    with pytest.raises(DataError):
        witness.trust(witness.verifier)
    other = tmp_path / "other.sqlite"
    debit(other, 1)
    renamed = VerifierKey.of(public_key_file(path).read_text())
    stranger = VerifierKey.of(public_key_file(other).read_text())
    with pytest.raises(LedgerError):  # another key for a log that is served
        witness.trust(VerifierKey(renamed.name, renamed.kind, stranger.public))


def test_a_witness_with_a_damaged_memory_signs_nothing(
    path: Path, witness: Witness, tmp_path: Path
) -> None:
    memory = tmp_path / "witness" / "logs.json"
    for damage in (
        "",
        "[]",
        "{",
        '{"x": 1}',
        memory.read_text().replace('"size": 0', '"size": "a"'),
    ):
        memory.write_text(damage)
        with pytest.raises(StateError):
            witness.cosign(asked(path, 0))


@given(st.text() | st.text("old 0123456789\n—+/=AB", max_size=200))
def test_any_text_for_a_request(text: str) -> None:
    for parse in (WitnessRequest.parse, Note.parse, VerifierKey.of):
        with pytest.raises(DataError):
            parse(text)


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "fedmuster", "ledger", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ})


def test_on_the_command_line(path: Path, tmp_path: Path) -> None:
    request, note, folder = tmp_path / "request", tmp_path / "note", tmp_path / "w"
    assert run("checkpoint", path, "--out", request).returncode == 0
    key = public_key_file(path).read_text().strip()
    signing = ("witness", request, "--folder", folder, "--out", note)
    assert run(*signing).returncode != 0  # the ledger is new to the witness
    signed = run(*signing, "--trust", key)
    assert signed.returncode == 0
    name = signed.stdout.split()[-1]
    with Ledger.open(path, currency="epsilon", kind="real") as ledger:
        (receipt,) = ledger.receipts(run="a", round=1, accounts=np.array([2]))
    client = tmp_path / "receipt.json"
    client.write_text(receipt.to_json())
    audited = ("audit", path, "--receipts", client, "--checkpoint", note, "--witness-key", name)
    assert run(*audited).returncode == 0
    assert run(*audited, "--key", PUBLIC).returncode == 1
    table = json.loads(client.read_text())
    client.write_text(json.dumps(table | {"debit": table["run"]}))
    refused = run(*audited)
    assert refused.returncode == 1
    assert str(client) in refused.stdout


def test_without_cryptography_there_are_debits_and_no_receipts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with Ledger.open(tmp_path / "l.sqlite", currency="epsilon", kind="real") as ledger:
        accounts = ledger.register(["ann"], 10)
        ledger.debit(run="a", round=1, accounts=accounts, units=np.array([1]))
        with pytest.raises(MissingExtraError):
            ledger.receipts(run="a", round=1, accounts=accounts)
        ledger.debit(run="a", round=2, accounts=accounts, units=np.array([1]))
    assert not public_key_file(tmp_path / "l.sqlite").exists()


def test_simulated_ledgers_give_no_receipts(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.sqlite", currency="epsilon", kind="simulated") as ledger:
        accounts = ledger.register(["ann"], 10)
        ledger.debit(run="a", round=1, accounts=accounts, units=np.array([1]))
        with pytest.raises(LedgerError):
            ledger.receipts(run="a", round=1, accounts=accounts)
    assert not (tmp_path / "state").exists()
