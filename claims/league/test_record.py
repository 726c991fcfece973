"""The record: a checksum, its formats, numbers that do not exist, and the page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import claims
from claims.league.at_work import AtWork
from claims.league.cells import Failure, Played
from claims.league.page import write_page
from claims.league.plan import Choice
from claims.league.record import FailureRecord, LeagueRecord, RunsRecord, _checksum, read_record
from claims.league.recording import _runs
from claims.league.score import Score
from claims.racing.milestones import Costs
from fedmuster.core.errors import DataError
from fedmuster.training.aggregation import FedAvg

PUBLISHED = sorted((Path(claims.__file__).parents[1] / "docs" / "league").glob("*.json"))
_COSTS = Costs(client_updates=9, server_updates=3, wasted=1, megabytes_down=2, megabytes_up=1)


def played(**changes: Any) -> Played:
    one = Played(seconds=3.0, costs=_COSTS, at_work=AtWork(9.5, 10.0), end=0.9, curve=(0.5, 0.8))
    return replace(one, **changes)


def signed(path: Path, content: Any) -> Path:
    content = {key: value for key, value in content.items() if key != "sha256"}
    path.write_text(json.dumps({**content, "sha256": _checksum(content)}), encoding="utf-8")
    return path


def test_a_record_is_read_back_and_cannot_be_changed(record: LeagueRecord, tmp_path: Path) -> None:
    path = tmp_path / "league.json"
    record.write(path)
    assert read_record(path) == record
    assert read_record(path).to_json() == record.to_json()
    assert json.loads(path.read_bytes())["sha256"] == record.checksum
    changed = json.loads(path.read_bytes())
    changed["contestants"][1]["runs"]["tiny, groups"]["seconds"][0] = 0.1
    path.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(DataError):
        read_record(path)


@pytest.mark.parametrize("text", ["{}", "[1]", "1", "null", '"x"', "no json", '{"sha256": 1}'])
def test_what_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "league.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError):
        read_record(path)


def test_a_record_that_lacks_something_is_refused(record: LeagueRecord, tmp_path: Path) -> None:
    content = json.loads(record.to_json())
    for missing in ("contestants", "rates", "format"):
        rest = {key: value for key, value in content.items() if key != missing}
        with pytest.raises(DataError):
            read_record(signed(tmp_path / "league.json", rest))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_published_records_can_be_read(path: Path, tmp_path: Path) -> None:
    record = read_record(path)
    assert record.contestants
    record.write(tmp_path / "again.json")
    assert read_record(tmp_path / "again.json") == record
    assert len(Score(record).standings(Score(record).labels)) == len(record.contestants)


def test_there_are_published_records() -> None:
    assert PUBLISHED


def test_an_unknown_format_is_named(record: LeagueRecord, tmp_path: Path) -> None:
    content = {**json.loads(record.to_json()), "format": 77}
    with pytest.raises(DataError) as caught:
        read_record(signed(tmp_path / "league.json", content))
    assert "77" in str(caught.value)


def with_end(record: LeagueRecord, label: str, name: str, runs: RunsRecord) -> LeagueRecord:
    contestants = tuple(
        replace(one, runs={**one.runs, name: runs}) if one.label == label else one
        for one in record.contestants
    )
    return replace(record, contestants=contestants)


def test_numbers_that_do_not_exist_are_null(record: LeagueRecord, tmp_path: Path) -> None:
    path = tmp_path / "league.json"
    failure = Failure(3, "ValueError: lost")
    runs = _runs(
        Choice(0.1, FedAvg()),
        [
            played(seconds=np.inf, end=np.nan, curve=(np.nan, 0.8)),
            played(seconds=np.inf, end=np.nan, curve=(), failure=failure),
        ],
    )
    assert runs.final_accuracy == (None, None)
    assert runs.costs["client_updates"] == (9, None)
    assert runs.curve == (None, 0.8)
    changed = with_end(record, "oort, rounds", "tiny, groups", runs)
    changed.write(path)
    json.loads(path.read_bytes(), parse_constant=pytest.fail)  # no NaN, no Infinity
    assert read_record(path) == changed
    score = Score(read_record(path))
    (oort,) = (one for one in score.standings(score.labels) if one.label == "oort, rounds")
    assert oort.accuracy.setting == "tiny, rates"
    assert np.isfinite([oort.time.mean, oort.client_updates.mean, oort.accuracy.value]).all()
    write_page(changed, tmp_path)


def test_the_page_has_everything(record: LeagueRecord, tmp_path: Path) -> None:
    written = write_page(record, tmp_path)
    assert [path.suffix for path in written] == [".json", ".md", ".png", ".png", ".png"]
    page = written[1].read_text(encoding="utf-8")
    for path in written[2:]:
        assert f"({path.name})" in page
    for one in record.contestants:
        assert one.label in page
    for setting in record.settings:
        assert setting.judging in page
        assert setting.tuning in page
    assert "900, 901" in page
    assert "proves only that the file was not edited" in page
    assert "Clients at work" in page
    assert "from an earlier record" not in page
    assert "failed" not in page


def test_the_page_marks_copies_and_failures(record: LeagueRecord, tmp_path: Path) -> None:
    failed = FailureRecord(
        setting="tiny, groups", use="judging", seed=1, round=7, error="ValueError: lost"
    )
    first, second, *others = record.contestants
    changed = replace(
        record,
        contestants=(
            replace(first, copied_from="ab" * 32),
            replace(second, failed=(failed,)),
            *others,
        ),
    )
    page = write_page(changed, tmp_path)[1].read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if "from an earlier record" in line]
    assert [row.split("|")[1].strip() for row in rows] == [first.label]
    assert "1 run failed" in page
    assert "ValueError: lost" in page
