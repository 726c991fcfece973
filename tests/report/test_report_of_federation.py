"""Reports read the journal of a real federation as that of a simulation, and do not call it one."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from selenium import webdriver
from tests.report.browser import Page
from tests.report.edge_runs import edge_row

from fedmuster.cli import cli
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import FloatArray
from fedmuster.experiments.journal import Journal
from fedmuster.report.figures import overview
from fedmuster.report.page import headline, opening
from fedmuster.report.page_data import page_data
from fedmuster.report.participation import group_shares
from fedmuster.report.runs import load
from fedmuster.report.summary import summarise
from fedmuster.report.write import write_report
from fedmuster.worlds.real_federation import RealFederation

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

WORLD = RealFederation(cohort_size=2)


def table(
    names: str, latency: Sequence[float], *, answered: Sequence[int] | None = None
) -> dict[str, NDArray[Any]]:
    """Clients that are called by one letter each."""
    return {
        "identity": np.array(list(names)),
        "group": np.zeros(len(names), dtype=np.int64),
        "typical_latency_seconds": np.array(latency, dtype=np.float64),
        "answered": np.array([1] * len(names) if answered is None else answered, dtype=np.bool_),
        "watched": np.arange(len(names)),
        "num_samples": 10 * np.arange(1, len(names) + 1),
    }


def write_two(write_run: "WriteRun") -> list[Path]:
    """The same three nodes, which came in another order, and one more in each run."""
    scores: dict[int, dict[str, FloatArray]] = {
        1: {"score": np.array([0.1, 0.2, 0.3])},
        3: {"score": np.array([0.4, 0.5, 0.6, 0.7])},
    }
    bsfl = write_run(
        "bsfl",
        world=WORLD,
        cohorts=[[0, 1], [0, 2], [0, 3]],
        accuracy=[0.5, np.nan, 0.75],
        scores=scores,
        clients=table("abcx", [1.0, 2.0, 4.0, 8.0]),
    )
    random = write_run(
        "random",
        world=WORLD,
        seconds=[4.0, 4.0, 4.0],
        cohorts=[[0, 1], [1, 2], [2, 3]],
        accuracy=[0.25, 0.5, 0.75],
        rejected={2: [1]},
        scores={2: {"score": np.array([1.0, 2.0, 3.0, 4.0])}},
        clients=table("cayb", [6.0, 3.0, 5.0, 9.0], answered=[1, 1, 1, 0]),
    )
    return [bsfl, random]


def test_clients_are_matched_by_identity(write_run: "WriteRun") -> None:
    comparison = load(write_two(write_run))
    (bsfl,), (random,) = comparison.runs.values()
    assert bsfl.identities == random.identities == ("a", "b", "c", "x", "y")
    assert bsfl.chosen.tolist() == [0, 1, 0, 2, 0, 3]
    assert random.chosen.tolist() == [2, 0, 0, 4, 4, 1]
    assert random.rejections.tolist() == [1, 0, 0, 0, 0]
    # b never answered in the second run, and nobody else is in both but a and c.
    latency = [(1 + 3) / 2, 2.0, (4 + 6) / 2, 8.0, 5.0]
    assert bsfl.typical_latency_seconds.tolist() == latency
    assert random.typical_latency_seconds.tolist() == latency
    assert bsfl.groups.tolist() == random.groups.tolist() == [0, 1, 2, 4, 3]
    assert bsfl.num_samples is not None
    assert bsfl.num_samples.tolist() == [20, 40, 10, 40, 30]
    assert "2 of 5 clients were not in every run." in comparison.notes
    groups = group_shares(comparison)
    assert groups.latencies.tolist() == sorted(latency)
    np.testing.assert_allclose(groups.shares[0], [1, 1 / 3, 1 / 3, 0, 1 / 3])


def test_who_was_elsewhere_does_not_count_as_passed_over(write_run: "WriteRun") -> None:
    folders = write_two(write_run)
    alone = [summarise(load([folder])).policies[0] for folder in folders]
    together = summarise(load(folders)).policies
    for one, two in zip(alone, together, strict=True):
        assert one.values["evenness"] == two.values["evenness"]


def test_scores_go_with_their_clients(write_run: "WriteRun") -> None:
    (bsfl,), (random,) = load(write_two(write_run)).runs.values()
    assert bsfl.scores is not None
    assert random.scores is not None
    assert bsfl.scores.clients.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(
        bsfl.scores.values["score"], [[0.1, 0.2, 0.3, np.nan, np.nan], [0.4, 0.5, 0.6, 0.7, np.nan]]
    )
    np.testing.assert_array_equal(random.scores.values["score"], [[2.0, 4.0, 1.0, np.nan, 3.0]])


def test_clients_without_a_name_in_common_are_matched_by_speed(write_run: "WriteRun") -> None:
    one = write_run("bsfl", world=WORLD, clients=table("ab", [1.0, 2.0]), cohorts=[[0]] * 3)
    two = write_run("random", world=WORLD, clients=table("cd", [4.0, 3.0]), cohorts=[[0]] * 3)
    comparison = load([one, two])
    (bsfl,), (random,) = comparison.runs.values()
    assert bsfl.chosen.tolist() == [0, 0, 0]
    assert random.chosen.tolist() == [1, 1, 1]
    assert bsfl.typical_latency_seconds.tolist() == [2.0, 3.0]
    assert any("equal rank in speed" in note for note in comparison.notes)
    three = write_run("oort", world=WORLD, clients=table("efg", [1.0, 2.0, 3.0]))
    with pytest.raises(StateError, match="client-id"):
        load([one, three])


def test_a_client_that_never_answered_has_no_latency(write_run: "WriteRun", tmp_path: Path) -> None:
    folder = write_run(world=WORLD, clients=table("abc", [1.0, 7.0, 3.0], answered=[1, 0, 1]))
    summary = summarise(load([folder]))
    (run,) = summary.comparison.runs["bsfl"]
    assert run.typical_latency_seconds.tolist() == [1.0, 2.0, 3.0]  # what pictures put it at
    (seed,) = page_data(summary)["clients"]["seeds"]
    assert seed["columns"]["identity"] == ["a", "b", "c"]
    assert seed["columns"]["latency"] == [1.0, None, 3.0]
    write_report([folder], tmp_path / "report", formats=())
    with (tmp_path / "report" / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["identity"] for row in rows] == ["a", "b", "c"]
    assert [row["typical_latency_seconds"] for row in rows] == ["1.0", "", "3.0"]
    nobody = write_run("oort", world=WORLD, clients=table("ab", [1.0, 1.0], answered=[0, 0]))
    (run,) = load([nobody]).runs["oort"]
    assert run.typical_latency_seconds.tolist() == [1.0, 1.0]


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn, but not turned into files, which takes most of the time."""
    monkeypatch.setattr("fedmuster.report.figures.save", lambda figure, path: None)


@pytest.mark.usefixtures("unwritten")
def test_no_word_of_simulation_and_no_regret(write_run: "WriteRun", tmp_path: Path) -> None:
    folders = write_two(write_run)
    for folder in folders:
        with Journal(folder) as journal:
            journal.evaluated(3, loss=0.5)
    for paths in (folders[:1], folders):
        out = tmp_path / f"report of {len(paths)}"
        names = {path.name for path in write_report(paths, out, formats=("svg",))}
        assert {"report.html", "overview.svg", "accuracy.svg", "loss.svg"} <= names
        assert "wall-clock-time.svg" in names
        assert not any("regret" in name or "simulated" in name for name in names)
        for name in ("summary.md", "summary.csv"):
            text = (out / name).read_text().lower()
            assert "simulated" not in text
            assert "regret" not in text
            assert "test set" not in text
        assert "wall_clock_seconds_mean" in (out / "summary.csv").read_text()
        page = (out / "report.html").read_text()
        assert "<code>flwr run</code>" in page
        assert "run it again" not in page
        summary = summarise(load(paths))
        words = " ".join([headline(summary), opening(summary), *summary.comparison.notes])
        words += repr(
            [c["title"] + c["xTitle"] + c["yTitle"] for c in page_data(summary)["charts"]]
        )
        words += repr([axes.get_title(loc="left") for axes in _axes(overview(summary.comparison))])
        assert "a real federation" in words
        assert "wall-clock time" in words
        for wrong in ("simulated", "regret", "test "):
            assert wrong not in words.lower(), wrong
    assert "runs do not share their luck" in words


def _axes(figure: Any) -> list[Any]:
    return [axes for part in (figure, *figure.subfigs) for axes in part.axes]


def test_without_an_evaluation_there_is_time_and_who_answered(write_run: "WriteRun") -> None:
    folder = write_run(world=WORLD, clients=table("abc", [1.0, 2.0, 3.0]))
    titles = {axes.get_title(loc="left") for axes in _axes(overview(load([folder])))}
    assert {"Wall-clock time", "Answers a round"} <= titles
    assert "Cumulative regret" not in titles


def test_accuracy_alone_has_a_time_to_it(write_run: "WriteRun") -> None:
    summary = summarise(load(write_two(write_run)))
    assert summary.target is not None
    assert summary.target.text == "75 %"
    assert [policy.values["seconds_to_target"].tolist() for policy in summary.policies] == [
        [6.0],
        [12.0],
    ]
    assert "final_loss" not in {metric.key for metric in summary.metrics}


@pytest.mark.usefixtures("unwritten")
def test_edges_are_read_as_in_a_simulation(write_run: "WriteRun", tmp_path: Path) -> None:
    folder = write_run(
        "cocs",
        world=RealFederation(cohort_size=3, edges=("north", "south")),
        cohorts=[[0, 1, 3], [], [0, 3]],
        network=[
            edge_row([0, 0, 1], [1, 0, 1], [1.0, 2.0, 0.5]),
            edge_row([], [], []),
            edge_row([1, 1], [1, 1], [1.0, 0.5]),
        ],
        clients={**table("abcd", [1.0, 2.0, 3.0, 4.0]), "group": np.array([0, 0, 1, 1])},
    )
    (run,) = load([folder]).runs["cocs"]
    assert run.network is not None
    assert run.columns["participants"].tolist() == [2.0, 0.0, 2.0]
    assert run.groups.tolist() == [0, 1, 2, 3]  # of speed
    written = {path.name for path in write_report([folder], tmp_path / "report", formats=("svg",))}
    assert {"utility.svg", "participants.svg", "budget-use.svg"} <= written
    titles = {axes.get_title(loc="left") for axes in _axes(overview(load([folder])))}
    assert "Cumulative regret" not in titles


@pytest.mark.parametrize("missing", ["identity", "answered", "typical_latency_seconds"])
def test_a_table_without_what_is_needed_is_damaged(write_run: "WriteRun", missing: str) -> None:
    folder = write_run(world=WORLD)
    clients = table("ab", [1.0, 2.0])
    with Journal(folder) as journal:
        journal.know_clients({name: clients[name] for name in clients if name != missing})
    with pytest.raises(StateError, match=f"damaged: it does not hold .*{missing}"):
        load([folder])


def test_a_client_that_is_not_there_is_damage(write_run: "WriteRun") -> None:
    folder = write_run(world=WORLD, cohorts=[[0, 5]] * 3, clients=table("ab", [1.0, 2.0]))
    with pytest.raises(StateError, match="2"):
        load([folder])


def test_a_federation_without_rounds_is_run_by_flower(write_run: "WriteRun") -> None:
    folder = write_run(world=WORLD, seconds=[], planned=3)
    with pytest.raises(StateError):
        load([folder])


def test_resume_says_what_to_do_instead(write_run: "WriteRun") -> None:
    folder = write_run(world=WORLD, planned=9, clients=table("ab", [1.0, 2.0]))
    result = CliRunner().invoke(cli, ["resume", str(folder)])
    assert isinstance(result.exception, ConfigError)
    assert "Flower runs it, and continues it, with `flwr run`" in str(result.exception)


def test_the_table_of_clients_finds_them_by_name(
    chromium: webdriver.Chrome, write_run: "WriteRun", tmp_path: Path
) -> None:
    write_report(write_two(write_run), tmp_path / "report", formats=())
    page = Page(chromium, tmp_path / "report" / "report.html")
    assert page.column(2) == ["a", "b", "c", "x", "y"]
    heading = "[data-sort='identity'] button"
    page.one(heading).click()
    assert page.column(2) == ["a", "b", "c", "x", "y"]
    page.one(heading).click()
    assert page.column(2) == ["y", "x", "c", "b", "a"]
    page.one("#client-search").send_keys("x")
    assert page.column(2) == ["x"]
