"""Clients hold a server to its ledger: receipts in grants, through real rounds of a federation."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from tests.flower.private_app import app_that, grid_of, received, send, train_a_bit
from tests.flower.tiny_app import model, nodes, trained
from tests.privacy.forgery import forge

from fedmuster import Random
from fedmuster.core.errors import ConfigError
from fedmuster.experiments.journal import JournalReader
from fedmuster.flower import Muster, PrivateMod, ReportingMod
from fedmuster.flower.client_vault import VaultContents
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.receipt_check import LEDGER_KEY, receipt_in
from fedmuster.flower.wire import PrivacyGrant
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.ledger import Evidence, Ledger, Receipt, audit
from fedmuster.privacy.ledger.evidence import read_receipt
from fedmuster.privacy.ledger.log import public_key_file
from fedmuster.privacy.mechanisms import Laplace
from fedmuster.privacy.schedules import Uniform

NAMES = "abcdef"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


class Federation:
    """Clients with files of their own, and a server that may be replaced between runs."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        (folder / "server").mkdir()
        (folder / "clients").mkdir()
        self.files = {name: folder / "clients" / f"{name}.json" for name in NAMES}
        self.config = config
        self.reporting = True
        self.ledger = folder / "server" / "ledger.sqlite"
        self.runs = 0

    def grid(self) -> InProcessGrid:
        """SuperNodes that have just started."""
        private = PrivateMod(mechanism=Laplace(), max_epsilon=4.0)
        app = ClientApp(mods=[private, ReportingMod()] if self.reporting else [private])
        app.train()(trained)
        return InProcessGrid(
            app,
            [
                Node(
                    node.node_id,
                    {**node.config, "release-notes": str(self.files[name]), **self.config},
                )
                for name, node in zip(NAMES, nodes(NAMES), strict=True)
            ],
        )

    def run(self, rounds: int = 2, *, grid: InProcessGrid | None = None) -> int:
        """A new run on the same ledger; how many updates were aggregated."""
        self.runs += 1
        privacy = Privacy(
            epsilon=4.0,
            schedule=Uniform(participations=40),
            mechanism=Laplace(),
            noise="secure",
            ledger=str(self.ledger),
        )
        folder = self.folder / f"run-{self.runs}"
        muster = Muster(
            FedAvg(fraction_evaluate=0.0),
            folder=folder,
            policy=Random(),
            cohort_size=6,
            wait_seconds=1.0,
            poll_seconds=0.001,
            privacy=privacy,
        )
        muster.start(
            grid=grid or self.grid(), initial_arrays=model(), num_rounds=rounds, timeout=10.0
        )
        return int(sum(JournalReader(folder).columns["num_aggregated"]))

    def held(self) -> dict[str, Receipt | None]:
        return {
            name: receipt_in(VaultContents.of(file.read_bytes()))
            for name, file in self.files.items()
        }

    def faults(self, ledger: Path | None = None) -> list[str]:
        evidence = Evidence(receipts=list(self.files.values()))
        return audit(ledger or self.ledger, evidence=evidence).faults


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    federation = Federation(tmp_path)
    assert federation.run(2) == 12
    return federation


def test_receipts_lead_on_from_round_to_round_and_from_run_to_run(federation: Federation) -> None:
    assert federation.run(2) == 12
    held = federation.held()
    sizes = {receipt.state.size for receipt in held.values() if receipt is not None}
    assert sizes == {1 + 1 + 2 + 4 * 6}  # the ledger, the clients, two runs, four rounds
    accounts = [r.statement().debit.account for r in held.values() if r is not None]
    assert sorted(accounts) == [1, 2, 3, 4, 5, 6]
    assert federation.faults() == []


def test_clients_that_do_not_say_what_they_hold_lose_a_round_and_go_on(tmp_path: Path) -> None:
    """Without ReportingMod a new server hears of their receipts when it has asked them."""
    federation = Federation(tmp_path)
    federation.reporting = False
    assert federation.run(2) == 12
    assert federation.run(3) == 12
    assert federation.faults() == []


FORGERIES = {
    "debits divided": ["UPDATE entries SET units = units / 10 WHERE kind = 'debit'"],
    "entries cut off": ["DELETE FROM entries WHERE sequence > 9"],
}


@pytest.mark.parametrize("name", FORGERIES)
def test_after_a_forgery_no_client_releases_anything(
    federation: Federation, state: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    forge(federation.ledger, state, *FORGERIES[name])
    before = {name: file.read_bytes() for name, file in federation.files.items()}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        assert federation.run(3) == 0
    assert "was rewritten" in caplog.text or "an old copy" in caplog.text
    assert {name: file.read_bytes() for name, file in federation.files.items()} == before
    assert len(federation.faults()) >= 6
    refused = [file.with_name(f"{file.name}.refused") for file in federation.files.values()]
    for file in refused:  # and what was refused is kept: it is signed, and contradicts
        assert read_receipt(file).statement().debit.units > 0


def test_a_copy_that_goes_on_elsewhere_gets_nothing_and_the_refused_receipt_proves_it(
    federation: Federation, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "second"
    shutil.copytree(tmp_path / "server", second / "server")
    shutil.copytree(state, second / "state")
    assert federation.run(1) == 6
    original, federation.ledger = federation.ledger, second / "server" / "ledger.sqlite"
    monkeypatch.setenv("FEDMUSTER_STATE", str(second / "state"))
    assert federation.run(2) == 0
    monkeypatch.setenv("FEDMUSTER_STATE", str(state))
    federation.ledger = original
    assert federation.faults() == []  # the original is whole ...
    refused = federation.files["a"].with_name("a.json.refused")
    evidence = Evidence(receipts=[refused])
    assert len(audit(original, evidence=evidence).faults) >= 1  # ... and was not the only one


def test_everything_that_a_server_has_put_back_together_is_noticed(
    federation: Federation, tmp_path: Path, state: Path
) -> None:
    """Ledger, heads, key, run folder with journal: as after restoring a whole machine."""
    parts = [tmp_path / "server", state, tmp_path / "run-1"]
    for part in parts:
        shutil.copytree(part, tmp_path / "backup" / part.name)
    grid, federation.runs = federation.grid(), 0
    assert federation.run(3, grid=grid) == 18  # the run goes on
    for part in parts:
        shutil.rmtree(part)
        shutil.copytree(tmp_path / "backup" / part.name, part)
    journal = [tmp_path / "run-1"]
    assert audit(federation.ledger, journal).faults == []  # these fit together
    assert len(federation.faults()) >= 6
    federation.runs = 0
    assert federation.run(4) == 12  # what it had; the two rounds after it brought nothing
    assert len(federation.faults()) >= 6


def test_a_new_ledger_is_refused_unless_the_clients_operator_names_it(
    federation: Federation, tmp_path: Path
) -> None:
    federation.ledger = tmp_path / "server" / "fresh.sqlite"
    assert federation.run(1) == 0
    key = public_key_file(federation.ledger).read_text().strip()
    federation.config = {LEDGER_KEY: key}
    assert federation.run(1) == 6
    federation.ledger = tmp_path / "server" / "ledger.sqlite"
    assert federation.run(1) == 0


def grants(path: Path, rounds: list[int], held: dict[int, list[int]]) -> list[PrivacyGrant]:
    """Grants for one client, with receipts that lead on from ``held``, by round."""
    made = []
    with Ledger.open(path, currency="epsilon", kind="real") as ledger:
        accounts = ledger.register(["ann"], 10**9)
        for number in rounds:
            ledger.debit(run="r", round=number, accounts=accounts, units=accounts * 0 + 1_000_000)
            sizes = {int(accounts[0]): held.get(number, [])}
            (receipt,) = ledger.receipts(run="r", round=number, accounts=accounts, held=sizes)
            made.append(PrivacyGrant.on(Laplace(), 0.001, receipt.to_json()))
    return made


def test_a_client_that_is_ahead_of_the_server_says_so_and_goes_on(tmp_path: Path) -> None:
    """The reply of round 2 was lost, so the server of round 3 knows of the first receipt only."""
    first, second, third, fourth = grants(
        tmp_path / "l", [1, 2, 3, 4], {2: [3 + 1], 3: [3 + 1], 4: [3 + 2]}
    )
    grid = grid_of(app_that(train_a_bit, [PrivateMod()]))
    received(send(grid, first, round_=1))
    received(send(grid, second, round_=2))
    waits = send(grid, third, round_=3)
    assert not waits.has_error()
    assert list(waits.content) == ["fedmuster"]
    assert dict(waits.content["fedmuster"]) == {"held.log-size": 5}
    received(send(grid, fourth, round_=4))


def test_what_a_client_refuses(tmp_path: Path) -> None:
    first, second = grants(tmp_path / "l", [1, 2], {2: [4]})
    other = grants(tmp_path / "other", [2], {})[0]
    table = json.loads(second.receipt)
    forged = {
        "nothing": "",
        "no receipt": "{}",
        "not JSON": "x",
        "deep": "[" * 50_000,
        "of the round before": first.receipt,
        "of another ledger": other.receipt,
        "with another line": json.dumps(table | {"debit": table["accounts"]}),
        "with an empty proof": json.dumps(table | {"since": [[4, ""]]}),
        "with another proof": json.dumps(table | {"since": [[4, "AAAA" * 32]]}),
    }
    for name, text in forged.items():
        grid = grid_of(app_that(train_a_bit, [PrivateMod()]))
        received(send(grid, first, round_=1))
        grant = PrivacyGrant.on(Laplace(), 0.001, text)
        reply = send(grid, grant, round_=2)
        assert reply.has_error() or "arrays" not in reply.content, name
        received(send(grid, second, round_=2))  # and the true one is still good


@pytest.mark.parametrize(
    ("amount", "round_", "run"), [(0.002, 1, "r"), (0.001, 7, "r"), (0.001, 1, "q")]
)
def test_a_receipt_is_for_what_is_granted(
    tmp_path: Path, amount: float, round_: int, run: str
) -> None:
    (first,) = grants(tmp_path / "l", [1], {})
    grant = PrivacyGrant.on(Laplace(), amount, first.receipt)
    grid = grid_of(app_that(train_a_bit, [PrivateMod()]))
    assert send(grid, grant, round_=round_, run=run).has_error()
    received(send(grid, first, round_=1))


def test_a_named_key_demands_a_receipt_from_the_first_grant_on(tmp_path: Path) -> None:
    (first,) = grants(tmp_path / "l", [1], {})
    key = public_key_file(tmp_path / "l").read_text().strip()
    for mod, config in ((PrivateMod(ledger_key=key), {}), (PrivateMod(), {LEDGER_KEY: key})):
        grid = grid_of(app_that(train_a_bit, [mod]), **config)
        assert send(grid, PrivacyGrant.on(Laplace(), 0.001), round_=1).has_error()
        received(send(grid, first, round_=1))
    with pytest.raises(ConfigError):
        PrivateMod(ledger_key="no key")
