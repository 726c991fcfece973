"""The page of runs without rounds in a real browser."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.report.browser import Page
from tests.report.roundless_runs import TRAINING, play

from fedmuster.report.job_views import slot_charts
from fedmuster.report.runs import Comparison, load
from fedmuster.report.write import write_report

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

USED, NO_ANSWER = (0x7D, 0xB8, 0xE3), (0xE5, 0x70, 0x4F)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("jobs-page")
    labels = ("random-rounds", "random", "oort")
    return [play(base, label, rounds=60, training=TRAINING) for label in labels]


@pytest.fixture(scope="module")
def comparison(folders: list[Path]) -> Comparison:
    return load(folders)


@pytest.fixture
def page(chromium: "Chrome", folders: list[Path], tmp_path: Path) -> Page:
    write_report(folders, tmp_path, formats=[])
    return Page(chromium, tmp_path / "report.html")


def test_slots_are_drawn_and_tell_their_jobs(page: Page, comparison: Comparison) -> None:
    assert page.errors() == []
    assert len(page.all("[data-slots]")) == 2
    chart = slot_charts(comparison)["random"]
    for colour in (USED, NO_ANSWER):
        assert page.pixels("[data-slots='1'] canvas", colour) > 500
    told = page.told(page.one("[data-slots='1'] canvas"), 6)
    clients = {
        client for client in range(14) if any(f"client {client}asked" in text for text in told)
    }
    assert clients == set(chart.client.tolist())


def test_policies_are_switched_off_everywhere(page: Page) -> None:
    page.toggle(1)
    assert not page.one("[data-slots='1']").is_displayed()
    assert page.one("[data-slots='2']").is_displayed()
    assert [bar.is_displayed() for bar in page.all("[data-work='1']")] == [False, False]
    assert page.all("#ages [data-bar='1']") == []
    assert len(page.all("#ages [data-bar='2']")) > 1
    page.toggle(1)


def test_what_rounds_cannot_tell(page: Page) -> None:
    assert page.all("#ages [data-bar='0']") == []
    updates, seconds = page.all("[data-work='0']")
    assert len(updates.find_elements("css selector", "span")) == 4
    assert seconds.find_elements("css selector", "span") == []


def test_charts_against_client_updates_zoom(page: Page) -> None:
    whole = page.limits("accuracy-updates")
    chart = page.one("[data-chart='accuracy-updates'] .plot")
    page.run("arguments[0].focus()", chart)
    chart.send_keys("+")
    page.settle()
    low, high = page.limits("accuracy-updates")
    assert high - low < whole[1] - whole[0]
    assert page.limits("loss-updates") == (low, high)


@pytest.mark.parametrize("width", [1200, 380])
def test_nothing_is_wider_than_the_page(page: Page, width: int) -> None:
    page.set_media(width=width, dark=True)
    page.settle()
    wide = page.run("return document.documentElement.scrollWidth")
    assert wide <= width
    assert page.errors() == []
