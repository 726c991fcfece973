"""The picture of who has what shows what the numbers say."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report.figures import save
from fedmuster.report.figures.partition_figure import describe, label_counts, partition_figure


def holdings(num_clients: int, num_classes: int) -> tuple[IntArray, IntArray]:
    """Targets and offsets; client k has more than k-1."""
    rng = np.random.default_rng(num_clients)
    sizes = np.arange(1, num_clients + 1) * 3
    return rng.integers(0, num_classes, sizes.sum()), np.concatenate([[0], np.cumsum(sizes)])


def title(figure: Figure) -> str:
    return figure.get_suptitle().replace("\n", " ")


def sizes_drawn(figure: Figure) -> FloatArray:
    (stairs,) = (patch for patch in figure.axes[0].patches if isinstance(patch, StepPatch))
    return np.asarray(stairs.get_data()[0])


def test_few_clients_are_stacks_of_labels() -> None:
    targets, offsets = holdings(12, 4)
    figure = partition_figure(targets, offsets, num_classes=4, title="Mine")
    (axes,) = figure.axes
    expected = label_counts(targets, offsets, 4)[::-1]  # the last client has the most
    bottom = np.zeros(12)
    assert len(axes.containers) == 4
    stacks = [cast(BarContainer, bars).patches for bars in axes.containers]
    for label, patches in enumerate(stacks):
        assert [bar.get_height() for bar in patches] == expected[:, label].tolist()
        assert [bar.get_y() for bar in patches] == bottom.tolist()
        bottom += expected[:, label]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        f"{client}" for client in range(11, -1, -1)
    ]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["3", "2", "1", "0"]
    assert len({patches[0].get_facecolor() for patches in stacks}) == 4
    assert title(figure) == "Mine " + describe(targets, offsets, 4)


@pytest.mark.parametrize(("num_clients", "num_classes"), [(100, 10), (500, 10), (20, 62)])
def test_many_clients_or_labels_are_a_heat_map(num_clients: int, num_classes: int) -> None:
    targets, offsets = holdings(num_clients, num_classes)
    quality = np.linspace(0.5, 1, num_clients)
    figure = partition_figure(targets, offsets, num_classes=num_classes, quality=quality)
    _, heat, dots, _ = figure.axes
    assert sizes_drawn(figure).tolist() == np.diff(offsets)[::-1].tolist()
    counts = label_counts(targets, offsets, num_classes)[::-1]
    shares = np.asarray(heat.images[0].get_array())
    np.testing.assert_allclose(shares.T, 100 * counts / counts.sum(axis=1, keepdims=True))
    # All pictures have the same colours for the same shares.
    assert heat.images[0].get_clim() == (0, 100)
    np.testing.assert_allclose(np.asarray(dots.lines[0].get_ydata()), quality[::-1])


def test_very_many_clients_are_drawn_together() -> None:
    sizes = np.full(10_000, 4)
    targets = np.tile(np.arange(4), 10_000)
    figure = partition_figure(targets, np.concatenate([[0], np.cumsum(sizes)]), num_classes=4)
    heat = figure.axes[1]
    shares = np.asarray(heat.images[0].get_array())
    assert shares.shape == (4, 640)
    np.testing.assert_allclose(shares, 25)
    assert tuple(heat.images[0].get_extent()) == (-0.5, 9_999.5, -0.5, 3.5)
    assert figure.axes[-1].get_ylabel() == "% of 16 clients' samples"


def test_a_regression_shows_values() -> None:
    targets, offsets = holdings(40, 1_000)
    values = targets.astype(np.float32)
    quality = np.full(40, 0.75)
    figure = partition_figure(values, offsets, num_classes=0, quality=quality)
    _, panel, _ = figure.axes
    assert sizes_drawn(figure).tolist() == np.diff(offsets)[::-1].tolist()
    medians = [np.median(part) for part in np.split(values, offsets[1:-1])][::-1]
    np.testing.assert_allclose(np.asarray(panel.lines[0].get_ydata()), medians)
    assert "labels" not in title(figure)
    assert "quality 0.75–0.75" in title(figure)


@pytest.mark.parametrize(("num_clients", "num_classes"), [(1, 1), (1, 0), (61, 10)])
def test_a_picture_is_the_same_bytes_again(
    tmp_path: Path, num_clients: int, num_classes: int
) -> None:
    targets, offsets = holdings(num_clients, max(num_classes, 1))
    held = targets if num_classes else targets.astype(np.float32)
    images = []
    for name in ("one.svg", "other.svg"):
        save(partition_figure(held, offsets, num_classes=num_classes), tmp_path / name)
        images.append((tmp_path / name).read_bytes())
    assert images[0] == images[1]


def test_one_client_is_described_in_the_singular() -> None:
    line = describe(np.array([0, 0, 1]), np.array([0, 3]), 2, np.array([0.5]))
    assert line == (
        "3 samples among 1 client: 3 each; 2 of 2 labels each, the main one 67\u00a0% on average; "
        "quality 0.50–0.50"
    )
