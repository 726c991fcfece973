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
from fedmuster.report.participation import choice_density, group_shares
from fedmuster.report.runs import Comparison, load
from fedmuster.report.statistics import mean_and_half_width

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


@pytest.fixture
def comparison(write_run: "WriteRun") -> Comparison:
    folders = []
    for number, label in enumerate(LABELS):
        for seed in (0, 1, 2):
            rng = np.random.default_rng((number, seed))
            size = 4 if label == "all-clients" else 2
            folders.append(
                write_run(
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
    np.testing.assert_allclose(heights[:, 0], group_shares(comparison.runs["bsfl"]))
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


@pytest.mark.parametrize("kind", figures.FORMATS)
@pytest.mark.parametrize("draw", DRAW)
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


def test_a_png_is_1600_pixels_wide(comparison: Comparison, tmp_path: Path) -> None:
    for draw in DRAW:
        figures.save(draw(comparison), tmp_path / "picture.png")
        assert int.from_bytes((tmp_path / "picture.png").read_bytes()[16:20], "big") == 1600


def test_unknown_ending(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in '\.gif', expected one of: \.png, \.svg, \.pdf"):
        figures.save(figures.regret(comparison), tmp_path / "picture.gif")


def test_matplotlib_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("fedmuster.report.figures")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(fedmuster.report, "figures")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"drawing figures needs matplotlib.*\[report\]"):
        importlib.import_module("fedmuster.report.figures")
