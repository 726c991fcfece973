import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

import fedmuster.report
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.report import figures
from fedmuster.report.curves import Axis, evaluations
from fedmuster.report.participation import choice_density, group_shares
from fedmuster.report.runs import Comparison, load
from fedmuster.report.statistics import mean_and_half_width
from fedmuster.report.target import Target

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

LABELS = ("bsfl", "random", "all-clients")
ROUNDS = 1_200
DRAW = (
    figures.regret,
    figures.simulated_time,
    figures.selection_by_group,
    figures.cohorts,
    figures.overview,
)


@pytest.fixture(scope="module")
def comparison(write_shared_run: "WriteRun") -> Comparison:
    folders = []
    for number, label in enumerate(LABELS):
        for seed in (0, 1, 2):
            rng = np.random.default_rng((number, seed))
            size = 4 if label == "all-clients" else 2
            folders.append(
                write_shared_run(
                    label,
                    seed,
                    seconds=rng.exponential(number + 1, ROUNDS).tolist(),
                    regret=rng.exponential(number + 1, ROUNDS).tolist(),
                    cohorts=[
                        np.sort(rng.choice(4, size, replace=False)).tolist() for _ in range(ROUNDS)
                    ],
                )
            )
    return load(folders)


def _check_curves(axes: Axes, comparison: Comparison, column: str) -> None:
    assert [line.get_label() for line in axes.lines] == list(comparison.labels)
    for line, band, label in zip(axes.lines, axes.collections, comparison.labels, strict=True):
        rounds = np.asarray(line.get_xdata(), dtype=np.int64)
        assert (rounds[0], rounds[-1]) == (1, ROUNDS)
        assert len(rounds) <= 700
        running = np.cumsum(comparison.column(label, column), axis=1)[:, rounds - 1]
        mean, half_width = mean_and_half_width(running)
        np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), mean)
        _, heights = np.asarray(band.get_paths()[0].vertices, dtype=float).T
        assert heights.max() == pytest.approx((mean + half_width).max())
        assert heights.min() == pytest.approx((mean - half_width).min())


def _legend_labels(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_regret_curves_are_the_means(comparison: Comparison) -> None:
    figure = figures.regret(comparison)
    linear, logarithmic = figure.axes
    for axes in (linear, logarithmic):
        _check_curves(axes, comparison, "regret")
    assert (linear.get_xscale(), logarithmic.get_xscale()) == ("linear", "log")
    assert linear.get_yscale() == logarithmic.get_yscale() == "linear"
    assert figure.get_suptitle() == (
        "Cumulative regret – 1,200 rounds, mean of 3 seeds with 95 % band"
    )
    assert _legend_labels(figure) == list(reversed(LABELS))  # from the highest to the lowest


def test_time_curves_are_the_means(comparison: Comparison) -> None:
    (axes,) = figures.simulated_time(comparison).axes
    _check_curves(axes, comparison, "seconds")
    assert axes.get_ylabel() == "simulated time (s)"
    assert len({line.get_color() for line in axes.lines}) == len(LABELS)


def test_bars_are_the_counted_shares(comparison: Comparison) -> None:
    (axes,) = figures.selection_by_group(comparison).axes
    bars = [group for group in axes.containers if isinstance(group, BarContainer)]
    heights = np.array([[bar.get_height() for bar in group] for group in bars])
    expected = np.zeros((2, 3))
    for place, label in enumerate(LABELS):
        for run in comparison.runs[label]:
            for client in run.chosen:
                expected[run.groups[client], place] += 1 / (3 * ROUNDS * 2)
    np.testing.assert_allclose(heights, expected)
    np.testing.assert_allclose(heights[:, 0], group_shares(comparison).shares[0])
    (line,) = axes.lines
    np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), 0.5)  # m/K = 2/4
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(LABELS)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["0.2 s", "0.9 s", "equal: 0.5"]


def test_heat_maps_are_the_densities(comparison: Comparison) -> None:
    figure = figures.cohorts(comparison)
    panels = [axes for axes in figure.axes if axes.images]
    assert [panel.get_title(loc="left") for panel in panels] == list(LABELS)
    scales = set()
    for panel, label in zip(panels, LABELS, strict=True):
        (image,) = panel.images
        shown = np.asarray(image.get_array())
        rows, bins = shown.shape
        density = choice_density(comparison.runs[label], rows=rows, bins=bins)
        low, high = image.get_clim()
        np.testing.assert_allclose(shown, np.maximum(density, low))
        scales.add((low, high))
    assert len(scales) == 1
    ((low, high),) = scales
    assert low * high == 1.0  # an equal share is in the middle of the colours
    np.testing.assert_allclose(np.asarray(panels[2].images[0].get_array()), 1.0)


def test_overview_holds_all_four(comparison: Comparison) -> None:
    figure = figures.overview(comparison)
    axes = {item.get_title(loc="left"): item for item in figure.axes}
    _check_curves(axes["Cumulative regret"], comparison, "regret")
    _check_curves(axes["Simulated time"], comparison, "seconds")
    assert len(axes["Who is chosen: by speed group"].containers) == 2
    assert all(axes[label].images for label in LABELS)
    assert _legend_labels(figure) == list(LABELS)


@pytest.fixture
def trained(write_run: "WriteRun") -> Comparison:
    folders = []
    for number, label in enumerate(LABELS):
        for seed in (0, 1, 2):
            rng = np.random.default_rng((number, seed))
            accuracy = np.where(np.arange(50) % 5 == 4, rng.random(50), np.nan)
            folders.append(
                write_run(
                    label,
                    seed,
                    seconds=rng.exponential(number + 1, 50).tolist(),
                    accuracy=accuracy.tolist(),
                    loss=(2 - accuracy).tolist(),
                )
            )
    return load(folders)


@pytest.mark.parametrize("column", ["accuracy", "loss"])
def test_learning_is_drawn_over_time_and_rounds(trained: Comparison, column: str) -> None:
    target = Target(column="accuracy", value=0.5)
    figure = {"accuracy": figures.accuracy, "loss": figures.loss}[column](trained, target)
    axes: tuple[tuple[Axes, Axis], ...] = ((figure.axes[0], "seconds"), (figure.axes[1], "round"))
    for panel, axis in axes:
        curves = evaluations(trained, column, axis)
        lines = [line for line in panel.lines if line.get_label() in LABELS]
        assert len(panel.lines) - len(lines) == (column == "accuracy")  # the target
        for line, curve in zip(lines, curves, strict=True):
            assert line.get_label() == curve.label
            np.testing.assert_array_equal(np.asarray(line.get_xdata(), dtype=float), curve.x)
            np.testing.assert_array_equal(np.asarray(line.get_ydata(), dtype=float), curve.mean)
        assert len(panel.collections) == len(LABELS)
        low, high = panel.get_ylim()
        assert low <= min(curve.mean.min() for curve in curves)
        assert high >= max(curve.mean.max() for curve in curves)
    assert figure.get_suptitle() == (f"Test {column} – 50 rounds, mean of 3 seeds with 95 % band")


def test_a_loss_over_decades_gets_a_logarithmic_axis(write_run: "WriteRun") -> None:
    figure = figures.loss(load([write_run(loss=[100.0, 1.0, 0.001])]))
    assert {axes.get_yscale() for axes in figure.axes} == {"log"}


def test_the_overview_of_a_training_begins_with_accuracy(trained: Comparison) -> None:
    titles = {axes.get_title(loc="left") for axes in figures.overview(trained).axes}
    assert {"Test accuracy against simulated time", "Test loss against simulated time"} <= titles
    assert "Cumulative regret" not in titles  # nobody judged


def test_runs_of_different_lengths_are_drawn(write_run: "WriteRun") -> None:
    folders = [
        write_run(label, seed, seconds=[length] * int(12 / length), horizon=12.0, loss=[1.0] * 12)
        for label, length in (("bsfl", 1.0), ("random", 3.0))
        for seed in (0, 1)
    ]
    comparison = load(folders)
    for draw in (figures.overview, figures.loss, *DRAW[1:4]):
        draw(comparison).draw_without_rendering()
    figure = figures.cohorts(comparison)
    extents = [axes.images[0].get_extent() for axes in figure.axes if axes.images]
    assert [extent[1] for extent in extents] == [12.5, 4.5]
    assert figure.get_suptitle().endswith("12 s, mean of 2 seeds")


def test_tall_bars_are_cut_and_told(write_run: "WriteRun") -> None:
    clients = {"group": np.repeat([0, 1], 20), "typical_latency_seconds": np.linspace(0.1, 2.0, 40)}
    few, all_of_them = [[0, 21], [1, 22], [2, 23]], [list(range(40))] * 3
    folders = [
        write_run("bsfl", cohorts=few, clients=clients),
        write_run("all-clients", cohorts=all_of_them, clients=clients),
    ]
    (axes,) = figures.selection_by_group(load(folders)).axes
    assert axes.get_ylim()[1] < 0.1
    assert [text.get_text() for text in axes.texts] == ["↑ 1"]


def test_without_a_judge_the_overview_says_so(write_run: "WriteRun") -> None:
    figure = figures.overview(load([write_run()]))
    (axes,) = (item for item in figure.axes if item.get_title(loc="left") == "Cumulative regret")
    assert not axes.lines
    assert axes.texts[0].get_text() == "not measured (regret = false)"


def test_a_single_run_has_neither_band_nor_legend(write_run: "WriteRun") -> None:
    figure = figures.simulated_time(load([write_run(seed=4)]))
    (axes,) = figure.axes
    assert not axes.collections
    assert not figure.legends
    assert figure.get_suptitle() == "Simulated time – 3 rounds, one seed (4)"


def test_notes_are_in_the_picture(write_run: "WriteRun") -> None:
    figure = figures.simulated_time(load([write_run(planned=50)]))
    assert "first 3 of 50 rounds" in " ".join(figure.get_suptitle().split())


def test_sixteen_policies_look_different(write_run: "WriteRun") -> None:
    comparison = load([write_run(f"policy-{number}") for number in range(16)])
    (axes,) = figures.simulated_time(comparison).axes
    assert len({(line.get_color(), line.is_dashed()) for line in axes.lines}) == 16


@pytest.mark.parametrize(
    ("draw", "kind"),
    # The overview holds the panels of all the others.
    [*((draw, "png") for draw in DRAW), (figures.overview, "svg"), (figures.overview, "pdf")],
)
def test_same_data_same_bytes(
    draw: Callable[[Comparison], Figure],
    kind: str,
    comparison: Comparison,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = tmp_path / f"one.{kind}", tmp_path / f"two.{kind}"
    figures.save(draw(comparison), one)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")  # what would be another date
    figures.save(draw(comparison), two)
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")
    if kind == "png":
        assert int.from_bytes(one.read_bytes()[16:20], "big") == 1600  # pixels wide


def test_unknown_ending(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'\.gif'"):
        figures.save(figures.regret(comparison), tmp_path / "picture.gif")


def test_matplotlib_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("fedmuster.report.figures")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(fedmuster.report, "figures")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError):
        importlib.import_module("fedmuster.report.figures")
