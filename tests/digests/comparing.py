"""Play cases, and compare their digests with a file of expected ones, or write that file."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.digests.cases import Case, cases
from tests.digests.digesting import COHORTS, Digests, of_explanation, of_report, of_run
from tests.digests.machine import fingerprint
from tests.digests.playing import command, play, replayed_here
from tests.digests.selecting import select_by

Found = dict[str, Digests]
"""Digests by run: ``label/seed-0``."""


def compare(expected: Path, only: Sequence[str], *, quick: bool | None) -> int:
    """Say which runs differ in what; how many cases do."""
    content: dict[str, Any] = json.loads(expected.read_text(encoding="utf-8"))
    exact = _explain_machine(content["machine"])
    wrong = compared = 0
    for case, found in _play_all(only, quick=quick):
        compared += 1
        differences = list(_differences(content["cases"].get(case.name), found, exact=exact))
        for difference in differences:
            _say(f"DIFFERS {case.name} {difference}")
        wrong += bool(differences)
    gone = set(content["cases"]) - {case.name for case in cases()}
    for name in sorted(gone):
        _say(f"GONE {name}: expected, but no case")
    what = "bit for bit" if exact else "by their cohorts"
    _say(f"{compared} cases compared {what}, {wrong} differ, {len(gone)} gone")
    return 1 if wrong or gone or not compared else 0


def write(expected: Path, only: Sequence[str], *, quick: bool | None) -> int:
    """Write what these cases give; what the file holds of other cases stays."""
    content: dict[str, Any] = {"machine": fingerprint(), "cases": {}}
    names = {case.name for case in cases()}
    if expected.exists():
        old = json.loads(expected.read_text(encoding="utf-8"))
        if old["machine"] == content["machine"]:
            content["cases"] = {name: old["cases"][name] for name in names & set(old["cases"])}
    failed = 0
    for case, found in _play_all(only, quick=quick):
        if isinstance(found, Exception):
            _say(f"FAILED {case.name}: {found}")
            failed += 1
        else:
            content["cases"][case.name] = found
    expected.write_text(_to_json(content), encoding="utf-8")
    _say(f"wrote {expected}: {len(content['cases'])} of {len(names)} cases")
    return 1 if failed else 0


def _play_all(
    only: Sequence[str], *, quick: bool | None
) -> Iterator[tuple[Case, Found | Exception]]:
    import fedmuster

    _say(f"source: {Path(fedmuster.__file__).parent}")
    began = time.monotonic()
    for case in cases():
        if any(fnmatchcase(case.name, name) for name in only) and quick in (None, case.quick):
            try:
                yield case, _found(case)
            except Exception as error:  # a case that cannot be played is one that differs
                yield case, error
    _say(f"{time.monotonic() - began:.0f} s")


def _found(case: Case) -> Found:
    with TemporaryDirectory() as folder:
        if case.selectors:
            return {name: select_by(name, Path(folder)) for name in case.selectors}
        cells = play(case, Path(folder))
        run = Path(folder) / "run"
        found = {f"{cell.parent.name}/{cell.name}": of_run(cell) for cell in cells}
        if case.report:
            command("report", str(run), "--format", "none")
            found["report"] = of_report(run / "report")
        if case.explain:
            for number, (name, cell) in enumerate(zip(found, cells, strict=True)):
                asked = ("explain", str(cell), "--round", str(case.explain), "--client", "5")
                with replayed_here() if number else nullcontext():  # one as people start it
                    found[name]["explain"] = of_explanation(command(*asked))
    return found


def _differences(expected: Found | None, found: Found | Exception, *, exact: bool) -> Iterator[str]:
    if isinstance(found, Exception):
        yield f"cannot be played: {type(found).__name__}: {found}"
    elif expected is None:
        yield "is not in the file of expected digests"
    else:
        for run in sorted(expected.keys() | found.keys()):
            old, new = expected.get(run, {}), found.get(run, {})
            tables = sorted(old.keys() | new.keys()) if exact else [COHORTS]
            wrong = [table for table in tables if old.get(table) != new.get(table)]
            if wrong:
                yield f"{run}: {', '.join(wrong)}"


def _explain_machine(expected: dict[str, str]) -> bool:
    """Whether the expected bits can be expected of this machine.

    On another, bits differ where libraries round otherwise. Cohorts hardly do: those of all cases
    were the same with the kernels of a Nehalem (no AVX2) as with those of a Haswell.
    """
    here = fingerprint()
    other = [name for name in here if here[name] != expected.get(name)]
    for name in other:
        _say(f"machine: {name} is {here[name]!r}, expected digests are of {expected.get(name)!r}")
    if other:
        _say("so only cohorts and counts are compared; for bits of two trees here see --help")
    return not other


def _to_json(content: dict[str, Any]) -> str:
    """One line for each run."""
    lines = [f'{{"machine": {json.dumps(content["machine"])},', '"cases": {']
    for name, runs in sorted(content["cases"].items()):
        rows = [
            f"  {json.dumps(run)}: {json.dumps(runs[run], sort_keys=True)}" for run in sorted(runs)
        ]
        lines += [f" {json.dumps(name)}: {{", ",\n".join(rows), " },"]
    lines[-1] = lines[-1].rstrip(",")
    return "\n".join([*lines, "}}", ""])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
