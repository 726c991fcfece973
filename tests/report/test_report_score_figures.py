"""Pictures, page and files of what policies thought of clients."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow.parquet as parquet
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure
from numpy.random import Generator
from tests.report.watched_runs import write_candidates, write_scored

from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.federation import Simulation, Watch
from fedmuster.report import figures, write
from fedmuster.report.figures.score_figures import spread
from fedmuster.report.page_data import score_data
from fedmuster.report.runs import Comparison, load
from fedmuster.report.score_series import plane, score_lines, timeline
from fedmuster.report.write import write_report
from fedmuster.worlds import BSFLRates

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

LABELS = ("bsfl", "random", "cs-ucb", "pause", "rbcs-f", "a label that is longer than any title")
TRUTHS = (("validity", "utility"), ())


@pytest.fixture
def scored(write_run: "WriteRun") -> Comparison:
    rng = np.random.default_rng(0)
    return load([write_scored(write_run, label, rng.random((30, 25))) for label in LABELS])


def _fleet(
    write_run: "WriteRun", labels: tuple[str, ...], num_clients: int, truth: tuple[str, ...]
) -> Comparison:
    folders = [
        write_candidates(write_run, label, num_clients=num_clients, truth=truth) for label in labels
    ]
    return load(folders)


def _visible(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible() and axes.get_label() == ""]


def test_lines_are_the_scores(scored: Comparison) -> None:
    figure = figures.score_convergence(scored)
    assert figure.get_suptitle() == "What policies think of clients – 30 rounds, one seed (0)"
    panels = _visible(figure)
    assert [panel.get_title(loc="left") for panel in panels[:5]] == list(LABELS[:5])
    assert panels[5].get_title(loc="left") == "a label that is longer than…"
    for panel, label in zip(panels, LABELS, strict=True):
        lines = score_lines(scored.runs[label][0])
        for drawn, line in zip(panel.lines, lines, strict=False):
            np.testing.assert_array_equal(np.asarray(drawn.get_ydata()), line.values)
        names = [text.get_text() for text in panel.texts]
        assert names == [*(str(line.client) for line in lines), "client"]


def test_names_stand_apart_and_in_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        ends = np.sort(rng.random(8) ** rng.integers(1, 9))
        places = spread(ends, 0.1)
        assert np.diff(places).min() > 0.1 - 1e-12
        assert places.min() >= 0
        assert places.max() <= 1
    np.testing.assert_allclose(spread(np.array([0.1, 0.5]), 0.2), [0.1, 0.5])


@pytest.mark.parametrize("truth", TRUTHS)
def test_dots_are_the_clients(truth: tuple[str, ...], write_run: "WriteRun") -> None:
    comparison = _fleet(write_run, ("bsfl",), 60, truth)
    own = plane(comparison.runs["bsfl"][0])
    figure = figures.validity_utility(comparison)
    lasting, chosen = _visible(figure)
    for panel, values in ((lasting, own.candidate_rounds), (chosen, own.chosen)):
        assert panel.get_title(loc="left") == "bsfl: 60 clients"
        assert panel.get_xlabel() == ("expected validity" if truth else _CENTRE)
        (dots,) = [part for part in panel.collections if isinstance(part, PathCollection)]
        np.testing.assert_array_equal(
            np.asarray(dots.get_offsets()), np.column_stack([own.validity, own.utility])
        )
        np.testing.assert_array_equal(np.asarray(dots.get_array()), values)
        _check_front(panel, own.front)
    (legend,) = figure.legends
    assert ("unknown" in legend.get_texts()[0].get_text()) == (not truth)


_CENTRE = "validity: centre of the bounds"


def _check_front(panel: Axes, front: FloatArray) -> None:
    """A step line is at the height of the best utility from there on."""
    (line,) = panel.lines
    assert line.get_drawstyle() == "steps-pre"
    x, y = (np.asarray(of, dtype=float) for of in (line.get_xdata(), line.get_ydata()))
    np.testing.assert_array_equal(np.column_stack([x, y])[1:-1], front)
    for place in np.linspace(front[0, 0], front[-1, 0], 50):
        at = np.searchsorted(x, place)
        assert y[at] == front[front[:, 0] >= place, 1].max()
    assert x[0] == panel.get_xlim()[0]
    assert y[-1] == panel.get_ylim()[0]


def test_cells_are_the_means(write_run: "WriteRun") -> None:
    comparison = _fleet(write_run, ("bsfl",), 700, TRUTHS[0])
    own = plane(comparison.runs["bsfl"][0])
    bins = own.bins
    assert bins is not None
    panels = _visible(figures.validity_utility(comparison))
    for panel, values in zip(panels, (own.candidate_rounds, own.chosen), strict=True):
        (mesh,) = [part for part in panel.collections if isinstance(part, QuadMesh)]
        shown: FloatArray = np.ma.filled(np.ma.asarray(mesh.get_array()), np.nan)
        np.testing.assert_array_equal(shown, bins.mean(values))
        _check_front(panel, own.front)
        assert panel.get_xlim()[0] < own.validity.min()  # the front is not the frame
        assert panel.get_xlim()[1] > own.validity.max()


def test_policies_share_their_colours(write_run: "WriteRun") -> None:
    figure = figures.validity_utility(_fleet(write_run, LABELS, 40, TRUTHS[0]))
    panels = _visible(figure)
    assert len(panels) == 2 * len(LABELS)
    for block in (panels[:6], panels[6:]):
        assert len({panel.collections[0].get_clim() for panel in block}) == 1


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("labels", [LABELS[:1], LABELS[:2], LABELS[:5]])
def test_areas_are_the_counts(
    labels: tuple[str, ...], truth: tuple[str, ...], write_run: "WriteRun"
) -> None:
    comparison = _fleet(write_run, labels, 60, truth)
    panels = _visible(figures.elimination(comparison))
    areas = [panel for panel in panels if panel.collections]
    assert len(areas) == len(labels)
    assert len(panels) == len(labels) * (2 if truth else 1)
    for panel, label in zip(areas, labels, strict=True):
        line = timeline(comparison.runs[label][0])
        assert panel.get_ylabel() == "of 60 watched clients"
        below = np.zeros(len(line.rounds))
        counts = (line.candidates, line.eliminated, line.dominated)
        for area, own in zip(panel.collections, counts, strict=True):
            assert isinstance(area, PolyCollection)
            vertices = np.asarray(area.get_paths()[0].vertices, dtype=float)
            for t, low, high in zip(line.rounds, below, below + own, strict=True):
                heights = vertices[vertices[:, 0] == t + 0.5, 1]
                assert {low, high} <= set(heights.tolist())
            below = below + own
        assert (below == 60).all()


DRAW: tuple[Callable[[Comparison], Figure], ...] = (figures.validity_utility, figures.elimination)


def test_same_data_same_bytes(write_run: "WriteRun", tmp_path: Path) -> None:
    fleet = load([write_candidates(write_run, "fleet", num_clients=500)])
    scored = load([write_scored(write_run, "bsfl", np.random.default_rng(0).random((9, 12)))])
    drawn = [(draw, fleet) for draw in DRAW]
    for draw, comparison in [(figures.score_convergence, scored), *drawn]:
        one, two, picture = (tmp_path / name for name in ("one.svg", "two.svg", "picture.png"))
        figures.save(draw(comparison), one)
        drawn_again = draw(comparison)
        figures.save(drawn_again, two)
        assert one.read_bytes() == two.read_bytes()
        figures.save(drawn_again, picture)
        assert int.from_bytes(picture.read_bytes()[16:20], "big") == 1600


def test_the_first_of_several_seeds_is_named(write_run: "WriteRun") -> None:
    folders = [write_candidates(write_run, "bsfl", seed=seed) for seed in (3, 8)]
    figure = figures.elimination(load(folders))
    assert figure.get_suptitle() == "Candidates over time – 12 rounds, seed 3, the first of 2"


def test_a_single_round_can_be_seen(write_run: "WriteRun", tmp_path: Path) -> None:
    comparison = load([write_candidates(write_run, "bsfl", num_clients=3, rounds=1)])
    for draw in DRAW:
        figures.save(draw(comparison), tmp_path / "one.png")
    one = load([write_scored(write_run, "random", np.ones((1, 3)))])
    figures.save(figures.score_convergence(one), tmp_path / "one.png")
    area = _visible(figures.elimination(comparison))[0].collections[0]
    assert isinstance(area, PolyCollection)
    corners = np.asarray(area.get_paths()[0].vertices, dtype=float)
    assert np.ptp(corners, axis=0).tolist() == [1.0, 3.0]


def test_the_report_holds_what_there_is(
    write_run: "WriteRun", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "save", lambda figure, path: None)  # which takes its time

    def names(folder: Path) -> set[str]:
        return {path.name for path in write_report([folder], tmp_path / "out", formats=("svg",))}

    new = {"score-convergence.svg", "validity-utility.svg", "elimination.svg", "scores.csv"}
    assert names(write_run("bsfl")) & new == set()
    scored = write_scored(write_run, "random", np.ones((3, 4)))
    assert names(scored) & new == {"score-convergence.svg", "scores.csv"}
    assert names(write_candidates(write_run, "pause")) & new == new - {"score-convergence.svg"}


def test_the_long_table(write_run: "WriteRun", tmp_path: Path) -> None:
    values = np.array([[1 / 3, np.nan], [0.5, 1e-300]])
    folders = [
        write_scored(write_run, "bsfl", values, watched=[1, 3]),
        write_run("random", seconds=[1.0, 1.0], clients={}),
    ]
    *_, path = write.write_csv(load(folders), tmp_path)
    assert path.read_text().splitlines() == [
        "policy,seed,round,client,score,value",
        f"bsfl,0,1,1,score,{1 / 3!r}",
        "bsfl,0,2,1,score,0.5",
        "bsfl,0,2,3,score,1e-300",
    ]
    *_, typed = write.write_parquet(load(folders), tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    read = parquet.read_table(typed).to_pylist()
    assert [{key: str(value) for key, value in row.items()} for row in read] == rows


def test_a_table_that_would_be_too_long_has_fewer_rounds(
    write_run: "WriteRun", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_MOST_SCORE_ROWS", 2 * 2 * 5 + 3)
    folders = [
        write_scored(write_run, "bsfl", np.ones((9, 2)), seed=seed, watched=[1, 3])
        for seed in (0, 1)
    ]
    *_, path = write.write_csv(load(folders), tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 5
    assert [row["round"] for row in rows[:10:2]] == ["1", "3", "5", "7", "9"]


def test_the_page_has_the_same_numbers(write_run: "WriteRun") -> None:
    holes = np.array([[np.nan, 2.0], [3.0, 4.0], [np.nan, 6.0]])
    comparison = load(
        [
            write_scored(write_run, "bsfl", holes),
            write_candidates(write_run, "random", num_clients=4, rounds=3),
        ]
    )
    data = score_data(comparison)
    (chart,) = data["lines"]
    assert (chart["name"], chart["title"], chart["x"]) == ("score-0", "bsfl", [1, 2, 3])
    assert [curve["name"] for curve in chart["curves"]] == ["client 1", "client 0"]
    assert chart["curves"][1]["mean"] == [None, 3.0, None]
    counts, validity = data["timelines"]
    run = comparison.runs["random"][0]
    line, own = timeline(run), plane(run)
    assert line.validity is not None
    assert [curve["mean"] for curve in counts["curves"]] == [
        line.candidates.tolist(),
        line.eliminated.tolist(),
        line.dominated.tolist(),
    ]
    assert validity["curves"][0]["policy"] == 1
    np.testing.assert_allclose(validity["curves"][0]["mean"], line.validity, rtol=1e-4)
    (drawn,) = data["planes"]
    assert drawn["lasting"] == own.candidate_rounds.tolist()
    assert drawn["chosen"] == own.chosen.tolist()
    np.testing.assert_allclose(drawn["front"], own.front, rtol=1e-4)


@dataclass(slots=True)
class _Asked:
    times: IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class _LeastAsked(PolicyTraits):
    """Whoever was asked least, with that as its score."""

    name: ClassVar[str] = "least-asked"

    def init(self, problem: Problem) -> _Asked:
        return _Asked(np.zeros(problem.num_clients, dtype=np.int64))

    def select(self, state: _Asked, view: RoundView, rng: Generator) -> Selection:
        first = np.argsort(state.times, kind="stable")[: view.num_to_choose]
        return Selection.of(view, slice(None), first)

    def observe(self, state: _Asked, selection: Selection, feedback: Feedback) -> None:
        state.times[selection.clients] += 1

    def scores(self, state: _Asked, view: RoundView) -> dict[str, FloatArray]:
        return {"score": -state.times.astype(np.float64)}


def test_a_policy_of_ones_own_is_watched(write_run: "WriteRun") -> None:
    world = BSFLRates(num_clients=10, cohort_size=2)
    simulation: Simulation[Any] = Simulation(
        _LeastAsked(), world, seed=0, watch=Watch(every=2, clients=5)
    )
    rows = [simulation.step() for _ in range(7)]
    told = {row.round: row.scores for row in rows if row.scores is not None}
    path = write_run(
        seconds=[1.0] * 7,
        scores=told,
        cohorts=[row.clients.tolist() for row in rows],
        clients={
            "group": np.zeros(10, dtype=np.int64),
            "typical_latency_seconds": np.ones(10),
            "watched": Watch(clients=5).watched(10),
        },
    )
    (runs,) = load([path]).runs.values()
    assert runs[0].scores is not None
    assert runs[0].scores.rounds.tolist() == [1, 3, 5, 7]
    cohorts = runs[0].chosen.reshape(7, 2)
    for t, row in zip((1, 3, 5, 7), runs[0].scores.values["score"], strict=True):
        asked = np.bincount(cohorts[: t - 1].ravel(), minlength=10)
        np.testing.assert_array_equal(row, -asked[::2])
