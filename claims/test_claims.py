"""The quick form of every claim, and the pages of the full runs."""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from claims import CLAIMS
from claims.claim import Claim, Evidence, Finding, RunCells
from fedmuster.experiments.run import SPEC_NAME, execute

PAGES = Path(__file__).parents[1] / "docs" / "claims"
PROVEN = ("'s bound", "exact solver", "No client ever spends more", "leak the same")
LIGHT = (
    "bsfl-table-2",
    "pause-small-r1",
    "mab-cs-accuracy",
    "fedsuv-selection",
    "cocs-participants",
)
"""One of each paper, a few seconds: the other quick forms take minutes together."""


def quick_form(name: str) -> object:
    marks = [] if name in LIGHT else [pytest.mark.slow]
    if name.startswith("flower"):
        marks.append(pytest.mark.flower)
    return pytest.param(name, marks=marks)


@pytest.fixture(scope="session")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> RunCells:
    """Plays each cell once for all claims, of all workers: quick forms share many of them."""
    base = tmp_path_factory.getbasetemp()
    played = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "played-cells"

    def run(cells: list[Path]) -> None:
        for cell in cells:
            known = played / hashlib.sha256((cell / SPEC_NAME).read_bytes()).hexdigest()
            if known.exists():
                shutil.copytree(known, cell, dirs_exist_ok=True)
                continue
            execute(cell)
            copy = shutil.copytree(cell, known.with_name(f"{known.name}-{os.getpid()}"))
            with suppress(OSError):  # another worker was faster
                copy.rename(known)

    return run


@pytest.mark.parametrize("name", [quick_form(name) for name in CLAIMS])
def test_quick_form(name: str, tmp_path: Path, run_once: RunCells) -> None:
    """Short runs decide little; what follows from a proof must hold in them too."""
    result = CLAIMS[name].check(tmp_path, quick=True, run=run_once)
    text = result.to_text()
    assert CLAIMS[name].statement in text
    assert "seeds" in text or "instances" in text
    for finding in result.evidence.findings:
        if any(words in finding.sentence for words in PROVEN):
            assert finding.holds, text
    if CLAIMS[name].heavy:  # as its lighter form, which draws the same figures
        assert result.to_markdown().startswith(f"# {name}: ")
        return
    written = result.write(tmp_path / "pages")
    assert {path.suffix for path in written} == {".md", ".json", ".png"}
    assert all(path.stat().st_size > 0 for path in written)


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if not claim.heavy])
def test_the_full_run_is_documented(name: str) -> None:
    numbers = json.loads((PAGES / f"{name}.json").read_text(encoding="utf-8"))
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    verdict = "holds" if numbers["holds"] else "does not hold"
    assert page.startswith(f"# {name}: {verdict}\n")
    assert f"`fedmuster claims {name}`" in page
    for finding in numbers["findings"]:
        assert finding["measured"] in page
    (row,) = (line for line in index.splitlines() if line.startswith(f"| [{name}]({name}.md)"))
    assert f"**{verdict}**" in row
    for picture in PAGES.glob(f"{name}-*.png"):
        assert f"({picture.name})" in page


def test_one_failed_sentence_fails_the_claim(tmp_path: Path) -> None:
    def gather(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
        findings = (Finding("it flies", "it flew", True), Finding("it swims", "it sank", False))
        return Evidence(setting="one duck, 3 seeds", findings=findings)

    claim = Claim(name="duck", source="Zoo", statement="Ducks do all.", gather=gather)
    result = claim.check(tmp_path, quick=False, run=lambda cells: None)
    assert not result.holds
    assert result.command == "fedmuster claims duck"
    assert "DOES NOT HOLD   it swims" in result.to_text()
    assert result.to_markdown().startswith("# duck: does not hold")
