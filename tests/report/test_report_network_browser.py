"""The network on the page, as people see it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from selenium import webdriver
from tests.report.browser import Page, chart
from tests.report.edge_runs import WORLD, edge_row, write_network, write_small

from fedmuster.report.runs import load
from fedmuster.report.write import write_report

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

BLUE, ORANGE = (11, 95, 181), (217, 72, 15)  # --policy-0 and --policy-1 in page.css
NASTY = "<b>cocs & 'more'"


@pytest.mark.parametrize("num_clients", [40, 700])
def test_networks_are_drawn(
    num_clients: int, chromium: webdriver.Chrome, write_run: "WriteRun", tmp_path: Path
) -> None:
    folders = [
        write_network(write_run, label, seed, num_clients=num_clients)
        for label in (NASTY, "random")
        for seed in (0, 1)
    ]
    write_report(folders, tmp_path / "report", formats=())
    page = Page(chromium, tmp_path / "report" / "report.html")
    for name in ("utility-total", "regret-total", "participants-round", "budget_share-round"):
        assert page.pixels(f"{chart(name)} canvas", BLUE) > 30
    assert not page.one("#groups").is_displayed()  # all clients are of one
    assert page.one("#maps .hint").text.startswith("Clients from cheap (top) to dear")
    bars = page.all("#budgets .bar")
    assert len(bars) == 3 * 2
    assert "No edge server ever spent more than its budget" in page.one("#budgets .hint").text

    maps = [
        f"[data-network='{layer}-{policy}']"
        for layer in ("clients", "choices")
        for policy in (0, 1)
    ]
    for one in maps:
        assert page.pixels(f"{one} canvas", ORANGE) > 3 * 20  # the edges
    run = load(folders).runs[NASTY][0]
    canvas = page.one(f"{maps[0]} > canvas")
    page.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
    told = page.told(canvas, 6 if num_clients == 40 else 24)
    if num_clients == 40:
        chosen = run.selection_counts()
        for client in (0, 17):
            start = f"client {client}times chosen{chosen[client]}in time"
            assert any(text.startswith(start) for text in told), start
    else:
        assert all(text.startswith("a square of ") for text in told)
    size = canvas.size
    box = json.loads(page.run("return document.getElementById('data').textContent"))["network"][
        "map"
    ]["box"]
    across, up = size["width"] - 40, size["height"] - 40  # less what the axes take
    assert across / up == pytest.approx((box[1] - box[0]) / (box[3] - box[2]), rel=0.15)

    page.toggle(0)
    assert [page.one(one).is_displayed() for one in maps] == [False, True, False, True]
    assert len(page.all("#budgets .bar")) == 3
    page.toggle(0)
    page.set_media(width=390, dark=True)
    page.settle()
    assert page.run("return document.documentElement.scrollWidth") <= 390
    assert page.pixels(f"{maps[0]} canvas", (255, 122, 69)) > 3 * 20  # in the dark
    assert page.errors() == []


@pytest.mark.parametrize("kind", ["nowhere", "nobody"])
def test_networks_of_little(
    kind: str, chromium: webdriver.Chrome, write_run: "WriteRun", tmp_path: Path
) -> None:
    if kind == "nowhere":
        path = write_small(write_run, regret=None)
    else:
        path = write_run("cocs", world=WORLD, cohorts=[[]] * 3, network=[edge_row([], [], [])] * 3)
    write_report([path], tmp_path / "report", formats=())
    page = Page(chromium, tmp_path / "report" / "report.html")
    assert not page.one("#network").is_displayed()
    assert len(page.all("#budgets .bar")) == 2
    assert page.one("#groups").is_displayed()  # two speeds
    assert page.errors() == []
