"""Clients that join a run: their accounts are on disk, and crashes at any moment cost no debit."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmuster.core.errors import DataError, LedgerError, StateError
from fedmuster.core.records import IntArray
from fedmuster.privacy.budget import Budget, Privacy
from fedmuster.privacy.ledger import Ledger, verify
from fedmuster.privacy.schedules import Uniform

SIMULATED = Privacy(epsilon=8.0, schedule=Uniform(participations=4), noise="seeded")
SECURE = Privacy(epsilon=8.0, schedule=Uniform(participations=4), noise="secure")


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def open_budget(
    path: Path, identities: Sequence[str], privacy: Privacy = SECURE, run: str = "run"
) -> Budget:
    return Budget(privacy, path, run=run, identities=identities, seed=5)


def clients(*numbers: int) -> IntArray:
    return np.array(numbers, dtype=np.int64)


def test_newcomers_stand_behind_those_that_are_there(path: Path) -> None:
    budget = open_budget(path, ["ann"])
    budget.debit(1, clients(0))
    budget.join(["zoe", "bob"])  # in the order of the selector, not of names
    assert budget.left.tolist() == [0.75, 1.0, 1.0]
    assert budget.able.tolist() == [True] * 3
    grant = budget.debit(2, clients(0, 2))
    assert grant.amounts.tolist() == [2.0, 2.0]
    assert budget.left.tolist() == [0.5, 1.0, 0.75]
    standing = budget.standing()
    assert (standing.spent_max, standing.num_exhausted) == (4.0, 0)
    assert standing.spent_mean == pytest.approx(2.0)
    budget.close()
    with Ledger.open(path, currency="epsilon", kind="real") as ledger:
        accounts = ledger.register(["zoe", "bob", "ann"], 8 * 10**9)
        assert ledger.balances(accounts).debits.tolist() == [0, 1, 2]


def test_a_federation_may_begin_with_nobody(path: Path) -> None:
    budget = open_budget(path, [])
    standing = budget.standing()
    assert (standing.spent_max, standing.spent_mean, standing.num_exhausted) == (0.0, 0.0, 0)
    assert budget.debited(1).tolist() == []
    image = budget.to_bytes()
    budget.load(image, after_round=0)
    budget.join([])
    budget.join(["ann", "bob"])
    assert budget.debit(1, clients(1)).releasable.all()
    assert budget.left.tolist() == [1.0, 0.75]
    budget.close()


def test_who_comes_back_from_another_run_has_what_it_has_left(path: Path) -> None:
    first = open_budget(path, ["ann", "bob"], run="first")
    for round_ in (1, 2, 3, 4):
        first.debit(round_, clients(1))
    first.close()
    second = open_budget(path, ["cem"], run="second")
    second.join(["bob", "ann"])
    assert second.left.tolist() == [1.0, 0.0, 1.0]
    assert second.able.tolist() == [True, False, True]
    second.close()


def test_nobody_joins_twice(path: Path) -> None:
    budget = open_budget(path, ["ann"])
    with pytest.raises(DataError, match="'ann'"):
        budget.join(["bob", "ann"])
    with pytest.raises(DataError, match="come twice"):
        budget.join(["cem", "cem"])
    with pytest.raises(DataError, match="printable"):
        budget.join(["a\nb"])
    assert budget.left.tolist() == [1.0]
    budget.join(["bob"])
    assert budget.left.tolist() == [1.0, 1.0]
    budget.close()


def test_another_cap_is_refused_and_nothing_grows(path: Path) -> None:
    other = Privacy(epsilon=9.0, schedule=Uniform(participations=4), noise="secure")
    open_budget(path, ["bob"], other, run="other").close()
    budget = open_budget(path, ["ann"])
    with pytest.raises(LedgerError):
        budget.join(["bob"])
    assert len(budget.left) == 1
    budget.close()


def test_who_has_paid_for_a_round_is_on_record(path: Path) -> None:
    budget = open_budget(path, ["ann", "bob", "cem"])
    assert budget.debited(1).tolist() == []
    budget.debit(1, clients(0, 2))
    budget.debit(2, clients(1, 2))
    budget.debit(4, clients(0))
    rounds = [budget.debited(round_).tolist() for round_ in (1, 2, 3, 4, 5)]
    assert rounds == [[0, 2], [1, 2], [], [0], []]
    budget.close()
    other = open_budget(path, ["cem", "ann"], run="other")
    assert other.debited(1).tolist() == []
    other.close()
    turned = open_budget(path, ["cem", "dot", "ann"])  # other places, and one who is not here
    assert [turned.debited(round_).tolist() for round_ in (1, 2, 4)] == [[0, 2], [0], [2]]
    turned.close()


def test_killed_between_the_debit_and_the_checkpoint(path: Path) -> None:
    """Two rounds are lost, and with them the joining of a client that had paid already."""
    budget = open_budget(path, ["ann", "bob"])
    budget.debit(1, clients(0))
    image = budget.to_bytes()
    budget.join(["eve", "dot"])
    budget.debit(2, clients(1, 2))
    budget.close()

    again = open_budget(path, ["ann", "bob"])  # as the checkpoint has it
    again.load(image, after_round=1)
    assert again.left.tolist() == [0.75, 0.75]
    assert again.debited(2).tolist() == [1]
    again.join(["dot", "eve"])  # they come in another order now
    assert again.left.tolist() == [0.75, 0.75, 1.0, 0.75]
    assert again.debited(2).tolist() == [1, 3]
    grant = again.debit(2, clients(0, 2, 3))
    assert grant.releasable.tolist() == [True, True, False]
    assert again.left.tolist() == [0.5, 0.75, 0.75, 0.75]  # eve has not paid twice
    again.close()
    assert verify(path).faults == []


def test_killed_after_the_checkpoint_that_knows_them(path: Path) -> None:
    budget = open_budget(path, ["ann"])
    budget.join(["bob"])
    budget.debit(1, clients(0, 1))
    image = budget.to_bytes()
    budget.close()
    again = open_budget(path, ["ann", "bob", "cem"])  # and one more who has come meanwhile
    again.load(image, after_round=1)
    assert again.left.tolist() == [0.75, 0.75, 1.0]
    again.close()


@pytest.mark.parametrize("privacy", [SECURE, SIMULATED], ids=["secure", "simulated"])
def test_fewer_clients_than_the_checkpoint_has_are_refused(path: Path, privacy: Privacy) -> None:
    budget = open_budget(path, ["ann", "bob"], privacy)
    image = budget.to_bytes()
    budget.close()
    again = open_budget(path, ["ann"], privacy)
    with pytest.raises(StateError, match=r"2.*1"):
        again.load(image, after_round=0)
    again.close()


def test_simulated_rounds_with_newcomers_are_played_again(path: Path) -> None:
    budget = open_budget(path, ["ann", "bob"], SIMULATED)
    budget.debit(1, clients(0))
    image = budget.to_bytes()
    budget.join(["eve"])
    lost = [budget.debit(2, clients(1, 2)), budget.debit(3, clients(0, 2))]
    at_the_end = budget.left.tolist()
    budget.close()
    for early in (True, False):
        again = open_budget(path, ["ann", "bob"] + ["eve"] * early, SIMULATED)
        again.load(image, after_round=1)
        assert again.left.tolist() == [0.75, 1.0, 1.0][: 2 + early]
        if not early:
            again.join(["eve"])
            assert again.left.tolist() == [0.75, 1.0, 1.0]
        for round_, before in enumerate(lost, start=2):
            grant = again.debit(round_, before.clients)
            assert grant.amounts.tolist() == before.amounts.tolist()
            assert grant.releasable.all()
        assert again.left.tolist() == at_the_end
        again.close()


@pytest.mark.parametrize(("joins_before", "left"), [(2, 1.0), (3, 0.75), (4, 0.5)])
def test_a_newcomer_in_the_middle_of_a_replay(path: Path, joins_before: int, left: float) -> None:
    """What she paid for rounds that were played again without her is spent; the rest comes yet."""
    budget = open_budget(path, ["ann"], SIMULATED)
    image = budget.to_bytes()
    budget.debit(1, clients(0))
    budget.join(["eve"])
    for round_ in (2, 3):
        budget.debit(round_, clients(0, 1))
    budget.close()
    again = open_budget(path, ["ann"], SIMULATED)
    again.load(image, after_round=0)
    for round_ in (1, 2, 3):
        if round_ == joins_before:
            again.join(["eve"])
            assert again.left[1] == left
        here = clients(0) if round_ < joins_before or round_ == 1 else clients(0, 1)
        again.debit(round_, here)
    if joins_before == 4:
        again.join(["eve"])
    assert again.left.tolist() == [0.25, 0.5]
    again.close()


def test_checkpoints_of_before_clients_could_join_are_read(path: Path) -> None:
    budget = open_budget(path, ["ann", "bob"], SIMULATED)
    budget.debit(1, clients(0))
    table = json.loads(budget.to_bytes())
    del table["clients"]
    budget.debit(2, clients(0))
    budget.load(json.dumps(table).encode(), after_round=1)
    assert budget.left.tolist() == [0.75, 1.0]
    table["spent"] = "something else"  # then nothing is played again
    budget.load(json.dumps(table).encode(), after_round=1)
    budget.debit(2, clients(0))
    assert budget.left.tolist() == [0.5, 1.0]
    budget.close()


class Federation:
    """A run that is killed now and then, against what it should remember."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paid: dict[str, set[int]] = {}
        self.round = 1
        self.saved_names: list[str] = []
        self.saved: bytes | None = None
        self.start()

    def start(self) -> None:
        self.names = list(self.saved_names)
        self.budget = open_budget(self.path, self.names)
        if self.saved is not None:
            self.budget.load(self.saved, after_round=self.round - 1)

    def play(self, joining: set[str], asked: set[str], fate: str) -> None:
        newcomers = sorted(joining - set(self.names))
        self.budget.join(newcomers)
        self.names += newcomers
        on_record = {self.names[client] for client in self.budget.debited(self.round).tolist()}
        assert on_record == {name for name in self.names if self.round in self.paid.get(name, ())}
        able = {name for name, fit in zip(self.names, self.budget.able, strict=True) if fit}
        cohort = sorted(self.names.index(name) for name in (asked & able) - on_record)
        if fate != "before the debit":
            grant = self.budget.debit(self.round, np.array(cohort, dtype=np.int64))
            assert grant.releasable.all()
            for client in cohort:
                self.paid.setdefault(self.names[client], set()).add(self.round)
        if fate == "lives":
            self.saved, self.saved_names = self.budget.to_bytes(), list(self.names)
            self.round += 1
        else:
            self.budget.close()
            self.start()
        left = [1 - len(self.paid.get(name, ())) / 4 for name in self.names]
        assert self.budget.left.tolist() == left
        assert self.budget.able.tolist() == [share > 0 for share in left]


NAMES = st.sets(st.sampled_from(["ann", "bob", "cem", "dot", "eve"]))
FATES = st.sampled_from(["lives", "lives", "after the debit", "before the debit"])


@settings(max_examples=25)
@given(rounds=st.lists(st.tuples(NAMES, NAMES, FATES), max_size=8))
def test_whatever_happens_each_release_is_paid_once(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[set[str], set[str], str]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "ledger.sqlite"
    federation = Federation(path)
    for joining, asked, fate in rounds:
        federation.play(joining, asked, fate)
    federation.budget.close()
    assert verify(path).faults == []
