"""The quick form of every claim, and the pages of the full runs."""

import json
from pathlib import Path

import pytest

from fedmuster.claims import CLAIMS
from fedmuster.claims.claim import Claim, Evidence, Finding, RunCells
from fedmuster.experiments.run import execute

PAGES = Path(__file__).parents[2] / "docs" / "claims"
PROVEN = ("'s bound", "exact solver", "No client ever spends more", "leak the same")


def one_by_one(cells: list[Path]) -> None:
    for cell in cells:
        execute(cell)


@pytest.mark.parametrize("name", CLAIMS)
def test_quick_form(name: str, tmp_path: Path) -> None:
    """Short runs decide little; what follows from a proof must hold in them too."""
    result = CLAIMS[name].check(tmp_path, quick=True, run=one_by_one)
    text = result.to_text()
    assert CLAIMS[name].statement in text
    assert "seeds" in text or "instances" in text
    for finding in result.evidence.findings:
        if any(words in finding.sentence for words in PROVEN):
            assert finding.holds, text
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
    result = claim.check(tmp_path, quick=False, run=one_by_one)
    assert not result.holds
    assert result.command == "fedmuster claims duck"
    assert "DOES NOT HOLD   it swims" in result.to_text()
    assert result.to_markdown().startswith("# duck: does not hold")
