"""Pictures, page and files of runs with edge servers."""

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as parquet
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from tests.report.edge_runs import WORLD, edge_row, write_network, write_small

from fedmuster.core.files import write_file
from fedmuster.core.records import FloatArray
from fedmuster.report import figures, write
from fedmuster.report.curves import moving_means, running_totals
from fedmuster.report.edge_views import (
    Dots,
    budget_check,
    network_maps,
    spread_of_shares,
    usual_success,
)
from fedmuster.report.page_data import page_data
from fedmuster.report.runs import Comparison, load
from fedmuster.report.summary import summarise
from fedmuster.report.write import write_report

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

LABELS = ("cocs", "random", "a label that is longer than any title")
NEW = {"utility.svg", "participants.svg", "budget-use.svg", "network-map.svg"}
FILES = {"network.csv", "edges.csv"}


@pytest.fixture(scope="module")
def comparison(write_shared_run: "WriteRun") -> Comparison:
    return load(
        [write_network(write_shared_run, label, seed) for label in LABELS for seed in (0, 1)]
    )


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[list[Path]], set[str]]:
    """The files of a report; pictures are drawn, but not painted, which takes longest."""
    monkeypatch.setattr(figures, "save", lambda _, path: write_file(path, b""))
    return lambda folders: {
        path.name for path in write_report(folders, tmp_path / "out", formats=("svg",))
    }


def _visible(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible() and axes.get_label() == ""]


def _circles(axes: Axes) -> tuple[EllipseCollection, EllipseCollection]:
    never, chosen = (one for one in axes.collections if isinstance(one, EllipseCollection))
    return never, chosen


def test_utility_and_participants_are_the_means(comparison: Comparison) -> None:
    (axes,) = figures.utility(comparison).axes
    for line, curve in zip(axes.lines, running_totals(comparison, "utility"), strict=True):
        np.testing.assert_array_equal(np.asarray(line.get_ydata(), dtype=float), curve.mean)
    assert len(axes.collections) == len(LABELS)
    (axes,) = figures.participants(comparison).axes
    assert axes.get_ylabel() == "participants a round\n(mean of 5 rounds)"
    assert not axes.collections
    for line, curve in zip(axes.lines, moving_means(comparison, "participants"), strict=True):
        np.testing.assert_array_equal(np.asarray(line.get_ydata(), dtype=float), curve.mean)


def test_regret_says_against_what(comparison: Comparison, write_run: "WriteRun") -> None:
    title = figures.regret(comparison).get_suptitle()
    assert title.startswith("Cumulative regret against the best placement – 40 rounds")
    flat = load([write_run(regret=[1.0, 1.0, 1.0])])
    assert figures.regret(flat).get_suptitle().startswith("Cumulative regret – 3 rounds")


def test_budgets_are_boxes(comparison: Comparison) -> None:
    figure = figures.budget_use(comparison)
    check = budget_check(comparison)
    assert check is not None
    assert check in " ".join(figure.get_suptitle().split())
    panels = _visible(figure)
    assert [panel.get_title(loc="left") for panel in panels[:2]] == list(LABELS[:2])
    for panel, label in zip(panels, LABELS, strict=True):
        use = spread_of_shares(comparison.runs[label])
        (boxes,) = (item for item in panel.containers if isinstance(item, BarContainer))
        tops = [box.get_y() + box.get_height() for box in boxes]
        np.testing.assert_allclose(tops, use.upper_quartile)
        dots = panel.lines[0]
        np.testing.assert_array_equal(np.asarray(dots.get_ydata(), dtype=float), use.mean)
        assert panel.get_ylim()[0] == 0 < 1 < panel.get_ylim()[1]


def test_budgets_that_are_nearly_spent_are_seen_from_near(write_run: "WriteRun") -> None:
    rows = [edge_row([0, 1], [1, 1], [2.8 + t / 20, 1.9]) for t in range(3)]
    path = write_run("cocs", world=WORLD, cohorts=[[0, 1]] * 3, network=rows)
    (panel,) = _visible(figures.budget_use(load([path])))
    low, high = panel.get_ylim()
    assert 0.85 < low < 2.8 / 3 < 1 < high


def test_the_map_is_true_to_scale_and_to_the_counts(comparison: Comparison) -> None:
    figure = figures.network_map(comparison)
    box, maps = network_maps(comparison)
    panels = _visible(figure)
    assert len(panels) == 2 * len(LABELS)
    title = " ".join(figure.get_suptitle().split())
    assert title.startswith("The network – 40 rounds, seed 0, the first of 2 Dots are clients, at ")
    assert "Below are the squares in which clients were when they were chosen" in title
    low, high = usual_success(maps.values())
    for place, (label, own) in enumerate(maps.items()):
        run = comparison.runs[label][0]
        assert own.clients is not None
        assert own.choices is not None
        assert own.choices.chosen.sum() == own.clients.chosen.sum() == len(run.chosen)
        assert run.network is not None
        in_time = [np.sum(run.network.in_time[run.chosen == client]) for client in range(50)]
        assert own.clients.in_time.tolist() == in_time
        for panel, dots in ((panels[place], own.clients), (panels[3 + place], own.choices)):
            assert panel.get_aspect() == 1.0
            assert panel.get_xlim() == (box.left, box.right)
            reach = [patch for patch in panel.patches if isinstance(patch, Circle)]
            assert {patch.get_radius() for patch in reach} == {2.0}
            _check_dots(panel, dots, (low, high))
    (bar,) = (axes for axes in figure.axes if axes.get_label() == "<colorbar>")
    assert bar.get_ylabel() == "share of the chosen who were in time"


def _check_dots(panel: Axes, dots: Dots, limits: tuple[float, float]) -> None:
    never, chosen = _circles(panel)
    asked = dots.chosen > 0
    np.testing.assert_array_equal(np.asarray(never.get_offsets()), dots.place_km[~asked])
    np.testing.assert_array_equal(np.asarray(chosen.get_offsets()), dots.place_km[asked])
    share = dots.in_time[asked] / dots.chosen[asked]
    np.testing.assert_array_equal(np.asarray(chosen.get_array()), share)
    assert chosen.get_clim() == limits
    area, times = np.asarray(chosen.get_widths()) ** 2, dots.chosen[asked]
    large = times > 0.2 * times.max()  # the others are as small as can be seen
    np.testing.assert_allclose(area[large] / area.max(), times[large] / times.max())


def test_squares_hold_what_is_in_them(comparison: Comparison) -> None:
    box, maps = network_maps(comparison)
    run, dots = comparison.runs["cocs"][0], maps["cocs"].choices
    assert run.network is not None
    assert run.network.place_km is not None
    assert dots is not None
    assert dots.cell_km is not None
    corner = np.array([box.left, box.bottom])
    found: dict[tuple[float, ...], list[tuple[FloatArray, bool]]] = {}
    for place, in_time in zip(run.network.place_km, run.network.in_time, strict=True):
        square = tuple(((place - corner) // dots.cell_km).tolist())
        found.setdefault(square, []).append((place, bool(in_time)))
    assert len(found) == len(dots.chosen)
    for place, chosen, in_time in zip(dots.place_km, dots.chosen, dots.in_time, strict=True):
        square = tuple(((place - corner) // dots.cell_km).tolist())  # of a mean: that of all
        members = found[square]
        assert (chosen, in_time) == (len(members), sum(one for _, one in members))
        np.testing.assert_allclose(place, np.mean([one for one, _ in members], axis=0))


def test_who_stands_still_needs_no_second_map(write_run: "WriteRun") -> None:
    comparison = load([write_network(write_run, label, moving=False) for label in LABELS])
    figure = figures.network_map(comparison)
    assert len(_visible(figure)) == len(LABELS)
    assert figure.get_suptitle().endswith("Nobody moved.")


def test_many_clients_are_squares(write_run: "WriteRun") -> None:
    folders = [
        write_network(write_run, label, num_clients=5000, num_edges=9, rounds=2, a_round=300)
        for label in ("cocs", "random", "a", "b", "c", "d", "e")
    ]
    comparison = load(folders)
    figure = figures.network_map(comparison)
    assert len(_visible(figure)) == 2 * 6
    assert figure.get_suptitle().startswith("The network: the first 6 of 7 policies – 2 rounds")
    maps = network_maps(comparison).maps
    assert len(maps) == 7
    for label, own in maps.items():
        assert own.clients is not None
        assert own.clients.cell_km is not None
        assert 100 < len(own.clients.chosen) <= 400
        assert own.clients.chosen.sum() == len(comparison.runs[label][0].chosen)
    clients = page_data(summarise(comparison))["network"]["map"]["policies"][0]["clients"]
    assert clients["clients"] is None


@pytest.mark.parametrize("missing", ["edge_position_km", "edge_radius_km", "position_km"])
def test_what_the_world_does_not_say_is_not_drawn(
    missing: str, write_run: "WriteRun", names: Callable[[list[Path]], set[str]]
) -> None:
    place = np.zeros((2, 2))
    known = {
        "edge_position_km": np.array([[0.0, 0.0], [1.0, 0.0]]),
        "edge_radius_km": np.array(2.0),
        "position_km": np.ones((4, 2)),
    }
    del known[missing]
    path = write_run(
        "cocs",
        world=WORLD,
        cohorts=[[0, 1]] * 3,
        network=[edge_row([0, 1], [1, 0], [1.0, 1.0], position_km=place)] * 3,
        clients=known,
    )
    written = names([path])
    assert ("network-map.svg" in written) is (missing != "edge_position_km")
    assert NEW - {"network-map.svg"} | FILES <= written
    assert "selection-by-group.svg" in written  # it has two groups


def test_nobody_is_ever_chosen(write_run: "WriteRun", tmp_path: Path) -> None:
    folders = [
        write_run(
            label,
            world=WORLD,
            cohorts=[[], [], []],
            network=[edge_row([], [], [], position_km=np.zeros((0, 2)))] * 3,
            clients={
                "edge_position_km": np.zeros((2, 2)),
                "position_km": np.zeros((4, 2)),
                "cohort_size": np.array(4),
            },
            regret=[0.0, 0.0, 0.0],
        )
        for label in ("cocs", "random")
    ]
    written = {path.name for path in write_report(folders, tmp_path / "out", formats=("svg",))}
    assert written >= NEW | FILES
    text = (tmp_path / "out" / "summary.md").read_text()
    assert "| cocs | 0 | 0 | – | 0 | 0 |" in text


@pytest.mark.parametrize("budget", [(math.inf, math.inf), (0.0, 0.0)])
def test_without_budgets_there_is_no_such_picture(
    budget: tuple[float, float], write_run: "WriteRun", names: Callable[[list[Path]], set[str]]
) -> None:
    rows = [edge_row([0, 1], [1, 0], [0.0, 0.0], budget=budget)] * 3
    path = write_run("cocs", world=WORLD, cohorts=[[0, 1]] * 3, network=rows)
    assert names([path]) & NEW == {"utility.svg", "participants.svg"}
    assert page_data(summarise(load([path])))["network"] == {"map": None, "budgets": None}


def _overview_titles(comparison: Comparison) -> list[str]:
    return [axes.get_title(loc="left") for axes in figures.overview(comparison).axes]


def test_overview(comparison: Comparison, write_run: "WriteRun") -> None:
    participants = "Participants: chosen and in time"
    assert _overview_titles(comparison) == [
        "Cumulative utility",
        "Cumulative regret",
        participants,
        "Budgets spent",
    ]
    unjudged = load([write_small(write_run, "bsfl", regret=None)])
    assert _overview_titles(unjudged) == [
        "Cumulative utility",
        participants,
        "Budgets spent",
        "Simulated time",
    ]
    unlimited = load([write_small(write_run, "pause", regret=None, budget=(math.inf, math.inf))])
    assert len(_overview_titles(unlimited)) == 4
    title = figures.overview(comparison).get_suptitle()
    assert title.startswith("3 policies, 50 clients at 3 edge servers – 40 rounds")


@pytest.mark.parametrize(
    "draw", [figures.utility, figures.participants, figures.budget_use, figures.network_map]
)
def test_same_networks_same_bytes(
    draw: Callable[[Comparison], Figure], comparison: Comparison, tmp_path: Path
) -> None:
    for name in ("one.svg", "two.svg"):
        figures.save(draw(comparison), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_files(comparison: Comparison, tmp_path: Path) -> None:
    written = write.write_csv(comparison, tmp_path)
    assert [path.name for path in written] == [
        "rounds.csv",
        "clients.csv",
        "network.csv",
        "edges.csv",
    ]
    runs = [run for runs in comparison.runs.values() for run in runs]
    rows = {}
    for path in written:
        with path.open(encoding="utf-8", newline="") as file:
            rows[path.stem] = list(csv.DictReader(file))
    assert len(rows["network"]) == sum(run.num_clients for run in runs)
    assert len(rows["edges"]) == 3 * len(runs)
    assert [float(row["utility"]) for row in rows["rounds"][:40]] == (
        runs[0].columns["utility"].tolist()
    )
    for name in ("network", "edges"):
        (typed,) = (p for p in write.write_parquet(comparison, tmp_path) if p.stem == name)
        read = parquet.read_table(typed).to_pylist()
        plain = [{k: "" if v is None else str(v) for k, v in row.items()} for row in read]
        assert plain == rows[name]


def test_flat_reports_have_nothing_of_it(
    write_run: "WriteRun", tmp_path: Path, names: Callable[[list[Path]], set[str]]
) -> None:
    path = write_run(regret=[1.0, 1.0, 1.0])
    assert names([path]) & (NEW | FILES) == set()
    data = page_data(summarise(load([path])))
    assert data["network"] is None
    assert [chart["name"] for chart in data["charts"]] == ["regret-total", "seconds-total"]
    assert "utility" not in (tmp_path / "out" / "rounds.csv").read_text()


def test_the_page_has_the_numbers_of_the_network(comparison: Comparison) -> None:
    data = page_data(summarise(comparison))
    assert [chart["name"] for chart in data["charts"]] == [
        "utility-total",
        "regret-total",
        "participants-round",
        "budget_share-round",
        "seconds-total",
    ]
    assert data["ranking"] == ("cheap", "dear", "price")
    assert data["groups"] is None
    network = data["network"]
    np.testing.assert_allclose(
        network["budgets"]["mean"][0], spread_of_shares(comparison.runs["cocs"]).mean, rtol=1e-4
    )
    own = network["map"]["policies"][1]
    run = comparison.runs["random"][0]
    assert own["clients"]["chosen"] == run.selection_counts().tolist()
    assert run.network is not None
    assert sum(own["choices"]["inTime"]) == run.network.in_time.sum()
    assert "price" in data["clients"]["seeds"][0]["columns"]
