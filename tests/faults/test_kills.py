"""``kill -9`` at random points, in small; and a ledger that others use meanwhile."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from tests.faults import children
from tests.faults.auditor import audit_ledger, audit_run
from tests.faults.children import Child, released
from tests.faults.scenarios import private_run
from tests.faults.watching import RELEASES

from fedmuster import PAUSE, Random
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import SPEC_NAME, prepare
from fedmuster.experiments.spec import LEDGER_NAME
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.schedules import Uniform


@pytest.mark.slow
def test_a_small_campaign_of_kills(tmp_path: Path) -> None:
    """Each scenario about once; in full: docs/claims/faults.md."""
    command = [sys.executable, "-m", "tests.faults", "--kills", "40", "--out", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    found = json.loads((tmp_path / "faults.json").read_text())
    assert found["kills"] >= 40
    assert found["faults"] == []
    assert found["identical_runs"] > 0


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_a_run_goes_on_after_another_has_used_its_ledger(
    tmp_path: Path, noise: Literal["seeded", "secure"]
) -> None:
    """Others can pay now, so it cannot play the same rounds again: what was debited for them is
    lost, and counts."""
    privacy = Privacy(
        epsilon=9.0,
        schedule=Uniform(participations=3),
        noise=noise,
        ledger=str(tmp_path / LEDGER_NAME),
    )
    first, second = tmp_path / "first", tmp_path / "second"
    prepare(first, private_run(Random(), privacy, rounds=14))
    prepare(second, private_run(PAUSE(), privacy, rounds=6))
    assert Child(first, partial(children.die, nth=6)).wait().code == -9
    before = released(first)
    assert Child(second).wait().code == 0
    outcome = Child(first).wait()
    assert outcome.code == 0, outcome.said
    assert len(outcome.released) > len(before)
    assert "clients have budget left" in (JournalReader(first).ending or "")
    ledger = audit_ledger(tmp_path / LEDGER_NAME, first / SPEC_NAME, tmp_path / "state")
    assert not ledger.faults
    for run in (first, second):
        assert not audit_run(run, run / RELEASES, ledger).faults
