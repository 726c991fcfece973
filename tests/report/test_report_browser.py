"""The page as people see it: opened from disk in a real Chromium."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from tests.report.browser import Page, chart
from tests.report.watched_runs import write_candidates, write_scored

from fedmuster.privacy.budget import Privacy
from fedmuster.report.write import write_report

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

NASTY = "<img src=x onerror=\"document.title='broken'\"> & 'Ünïcode' ${x}"
LABELS = ("bsfl", "random", NASTY)
BLUE, ORANGE = (11, 95, 181), (217, 72, 15)  # --policy-0 and --policy-1 in page.css


@pytest.fixture(scope="module")
def report(write_shared_run: "WriteRun", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three policies, two seeds, 40 rounds, every second evaluated."""
    folders = []
    for number, label in enumerate(LABELS):
        for seed in (0, 1):
            rng = np.random.default_rng((number, seed))
            grown = 0.9 - 0.7 * np.exp(-np.arange(1, 41) / (8 + 4 * number)) - 0.01 * seed
            known = np.where(np.arange(40) % 2 == 1, grown, np.nan)
            folders.append(
                write_shared_run(
                    label,
                    seed,
                    seconds=rng.uniform(number + 1, number + 2, 40).tolist(),
                    regret=rng.exponential(number + 1, 40).tolist(),
                    cohorts=[np.sort(rng.choice(4, 2, replace=False)).tolist() for _ in range(40)],
                    accuracy=known.tolist(),
                    loss=(3 - 3 * known).tolist(),
                    clients={"num_samples": np.array([40, 10, 30, 20])},
                    versions={"numpy": "</script><script>document.title='broken'</script>"},
                )
            )
    out = tmp_path_factory.mktemp("report")
    write_report(folders, out, formats=())
    return out / "report.html"


@pytest.fixture
def page(chromium: webdriver.Chrome, report: Path) -> Page:
    return Page(chromium, report)


def test_it_draws_and_asks_nobody(page: Page) -> None:
    names = ["accuracy-seconds", "accuracy-round", "loss-seconds", "loss-round"]
    names += ["regret-total", "seconds-total"]
    charts = page.all("[data-chart]")
    assert [drawn.get_attribute("data-chart") for drawn in charts] == names
    for name in names:
        assert page.pixels(f"{chart(name)} canvas", BLUE) > 30
        assert page.pixels(f"{chart(name)} canvas", ORANGE) > 30
    assert len(page.all(".group .bar")) == 2 * len(LABELS)
    assert len(page.all("[data-map] canvas")) == len(LABELS)
    assert page.errors() == []
    urls = page.requests()
    assert [url for url in urls if not url.startswith("data:")] == [page.chrome.current_url]


def test_names_are_text_and_nothing_else(page: Page) -> None:
    assert page.chrome.title == "3 policies on digits – fedmuster"
    assert page.all("img") == []
    assert page.one("label:nth-of-type(3) span").text == NASTY
    assert page.all("main tr:nth-child(3) th[scope=row]")[0].text == NASTY
    assert "</script>" in page.one(".versions").text
    assert page.run("return document.querySelectorAll('script').length") == 2
    assert page.errors() == []


def test_an_injected_script_would_not_run(page: Page) -> None:
    page.run(
        "const made = document.createElement('script');"
        "made.textContent = \"document.title = 'broken'\"; document.body.append(made)"
    )
    assert page.chrome.title != "broken"
    assert "Content Security Policy" in "".join(page.errors())


def test_hovering_tells_values(page: Page) -> None:
    name = "accuracy-round"
    plot = page.one(f"{chart(name)} .u-over")
    page.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(page.chrome).move_to_element(plot).perform()
    page.settle()
    lines = page.one(f"{chart(name)} .tip").text.splitlines()
    assert lines[0] == "round 20"
    assert lines[1].startswith("bsfl 83.8 % ± ")  # 0.9 - 0.7 exp(-20/8) - 0.005
    assert [line.split()[0] for line in lines[1:]] == ["bsfl", "random", "<img"]  # best first
    assert not page.one(f"{chart('loss-round')} .tip").is_displayed()
    ActionChains(page.chrome).move_to_element(page.one("h1")).perform()
    page.settle()
    assert not page.one(f"{chart(name)} .tip").is_displayed()


def test_a_policy_switched_off_is_gone_everywhere(page: Page) -> None:
    columns = len(page.all(".client-table thead th"))
    page.toggle(1)
    for drawn in page.all("[data-chart]"):
        assert (drawn.get_attribute("data-shown") or "").split("\n") == ["bsfl", NASTY]
        name = drawn.get_attribute("data-chart") or ""
        assert page.pixels(f"{chart(name)} canvas", ORANGE) == 0
        assert page.pixels(f"{chart(name)} canvas", BLUE) > 30
    assert page.all(".bar[data-bar='1']") == []
    assert not page.one("[data-map='1']").is_displayed()
    assert page.one("[data-map='0']").is_displayed()
    headings = [cell.text for cell in page.all(".client-table thead th")]
    assert len(headings) == columns - 1
    assert "Chosen by random" not in headings
    rows = page.all("main tr[data-policy='random']")
    assert len(rows) >= 3
    assert not any(row.is_displayed() for row in rows)
    page.toggle(1)
    assert page.pixels(f"{chart('accuracy-round')} canvas", ORANGE) > 30
    assert page.one("[data-map='1']").is_displayed()
    for button in page.all("#policies button"):  # All, None
        button.click()
    page.settle()
    assert page.pixels(f"{chart('accuracy-round')} canvas", BLUE) == 0
    assert page.errors() == []


def test_bands_can_be_switched_off(page: Page) -> None:
    count = "return document.querySelector(arguments[0]).toDataURL().length"
    canvas = f"{chart('accuracy-seconds')} canvas"
    before = page.run(count, canvas)
    page.one("#bands").click()
    page.settle()
    assert page.run(count, canvas) < before
    assert page.pixels(canvas, BLUE) > 30


def test_dragging_zooms_all_charts_of_an_axis(page: Page) -> None:
    plot = page.one(f"{chart('accuracy-round')} .u-over")
    page.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    width = plot.size["width"]
    assert page.limits("accuracy-round") == page.limits("loss-round") == (1, 40)
    drag = ActionChains(page.chrome).move_to_element_with_offset(plot, -width // 4, 0)
    drag.click_and_hold().move_by_offset(width // 2, 5).release().perform()
    page.settle()
    low, high = page.limits("accuracy-round")
    assert low == pytest.approx(1 + 39 / 4, abs=0.5)
    assert high == pytest.approx(1 + 39 * 3 / 4, abs=0.5)
    assert page.limits("loss-round") == page.limits("regret-total") == (low, high)
    assert page.limits("accuracy-seconds")[0] == 0  # another axis stays
    page.one(f"{chart('accuracy-round')} button").click()
    page.settle()
    assert page.limits("accuracy-round") == page.limits("loss-round") == (1, 40)
    assert page.errors() == []


def test_the_keyboard_suffices(page: Page) -> None:
    plot = page.one(f"{chart('accuracy-round')} .plot")
    assert "At the end: bsfl 89" in (plot.get_attribute("aria-label") or "")
    page.run("arguments[0].focus({focusVisible: true})", plot)
    plot.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    page.settle()
    assert page.one(f"{chart('accuracy-round')} .tip").text.startswith("round 4")
    plot.send_keys("+")
    page.settle()
    low, high = page.limits("loss-round")
    assert high - low < 39
    plot.send_keys("0")
    page.settle()
    assert page.limits("loss-round") == (1, 40)
    assert page.errors() == []


def test_a_finger_zooms(page: Page) -> None:
    page.set_media(width=390, dark=False)
    page.settle()
    plot = page.one(f"{chart('loss-round')} .u-over")
    page.run("arguments[0].scrollIntoView({block: 'center'})", plot)
    frame = page.run("return arguments[0].getBoundingClientRect().toJSON()", plot)
    middle = frame["y"] + frame["height"] / 2

    def touch(kind: str, *parts: float) -> None:
        points = [{"x": frame["x"] + part * frame["width"], "y": middle} for part in parts]
        page.chrome.execute_cdp_cmd(
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": points}
        )

    touch("touchStart", 0.25)
    for part in (0.35, 0.5, 0.65, 0.75):
        touch("touchMove", part)
    touch("touchEnd")
    page.settle()
    low, high = page.limits("loss-round")
    assert 5 < low < 15 < 25 < high < 35
    assert page.errors() == []


def test_clients_are_sorted_and_searched(page: Page) -> None:
    heading = "[data-sort='latency'] button"
    assert page.column(1) == ["0", "1", "2", "3"]
    page.one("[data-sort='samples'] button").click()
    assert page.column(4) == ["10", "20", "30", "40"]
    page.one(heading).click()
    assert page.column(3) == ["0.1", "0.3", "0.8", "1"]
    page.one(heading).send_keys(Keys.ENTER)  # still in focus, turned round
    assert page.column(3) == ["1", "0.8", "0.3", "0.1"]
    assert page.one("[data-sort='latency']").get_attribute("aria-sort") == "descending"
    search = page.one("#client-search")
    for words, clients in {
        "2": ["2"],
        "latency<0.5": ["1", "0"],
        "group=1 samples>=30": ["2"],
        "latency<0.5 1": ["1"],
        f'"{NASTY.replace(chr(34), "")}">=0': ["3", "2", "1", "0"],
        "nothing=1": [],
    }.items():
        search.clear()
        search.send_keys(words)
        assert page.column(1) == clients, words
    assert page.one(".tools .count").text == "none found"
    search.clear()
    search.send_keys(" ")
    first = page.column(5)
    page.one("#client-seed option:nth-child(2)").click()
    assert page.column(5) != first  # another seed, other cohorts
    assert page.errors() == []


def test_dark_and_narrow(page: Page) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    assert page.run(background) == "rgb(255, 255, 255)"
    page.set_media(width=1200, dark=True)
    page.settle()
    assert page.run(background) == "rgb(15, 19, 24)"
    canvas = f"{chart('accuracy-round')} canvas"
    assert page.pixels(canvas, BLUE) == 0
    assert page.pixels(canvas, (79, 156, 240)) > 30  # --policy-0 in the dark
    page.set_media(width=390, dark=True)
    page.settle()
    assert page.run("return document.documentElement.scrollWidth") <= 390
    assert page.errors() == []


@pytest.mark.parametrize("cap", [30.0, 900.0])
def test_privacy_is_drawn_against_its_cap(
    cap: float, chromium: webdriver.Chrome, write_run: "WriteRun", tmp_path: Path
) -> None:
    spent: dict[str, list[float] | None] = {
        "bsfl": np.linspace(1, 29, 20).tolist(),
        "random": np.linspace(2, 30, 20).tolist(),
        "open": None,
    }
    folders = [
        write_run(
            label,
            seconds=[1.0] * 20,
            loss=[1.0] * 20,
            accuracy=np.linspace(0.1, 0.9, 20).tolist(),
            spent=own,
            privacy=Privacy(epsilon=cap),
        )
        for label, own in spent.items()
    ]
    write_report(folders, tmp_path / "report", formats=())
    page = Page(chromium, tmp_path / "report" / "report.html")
    for name in ("spent_max-seconds", "spent_max-round", "spent_mean-round", "accuracy-spent_max"):
        assert page.pixels(f"{chart(name)} canvas", BLUE) > 30
        shown = page.one(chart(name)).get_attribute("data-shown") or ""
        assert shown.split("\n") == ["bsfl", "random"]
    muted = page.pixels_by_row(f"{chart('spent_max-round')} canvas", (87, 96, 106))
    assert (max(muted) > 120) is (cap == 30.0)  # dots across, or just a word
    plot = page.one(f"{chart('accuracy-spent_max')} .plot")
    page.run("arguments[0].focus({focusVisible: true})", plot)
    plot.send_keys(Keys.ARROW_RIGHT)
    page.settle()
    lines = page.one(f"{chart('accuracy-spent_max')} .tip").text.splitlines()
    assert lines == ["largest ε spent by a client: 1", "bsfl 10 %"]
    plot.send_keys("+")
    page.settle()
    low, high = page.limits("accuracy-spent_max")
    assert high - low < 30
    assert page.limits("spent_max-round") == (1, 20)  # another axis stays
    assert "privacy: simulated" in page.one("header").text
    assert page.errors() == []


def test_many_clients_are_turned_page_by_page(
    chromium: webdriver.Chrome, write_run: "WriteRun", tmp_path: Path
) -> None:
    number = 12_000
    clients = {
        "group": np.arange(number) * 10 // number,
        "typical_latency_seconds": np.linspace(0.1, 2.0, number),
    }
    write_report([write_run(clients=clients)], tmp_path / "report", formats=())
    assert (tmp_path / "report" / "report.html").stat().st_size < 600_000
    page = Page(chromium, tmp_path / "report" / "report.html")
    hint = page.one("#clients .hint").text
    assert "a sample of 10,000 of the 12,000 clients" in hint
    assert page.one(".tools .count").text == "1–25 of 10,000"
    assert len(page.column(1)) == 25
    page.all(".tools button")[1].click()
    assert page.one(".tools .count").text == "26–50 of 10,000"
    page.one("[data-sort='policy 0'] button").click()
    assert page.column(1)[:2] == ["0", "1"]
    assert page.all("[data-chart='accuracy-round']") == []
    assert page.errors() == []


@pytest.mark.parametrize("kind", ["one seed", "by time", "one evaluation"])
def test_other_shapes_draw_without_complaint(
    kind: str, chromium: webdriver.Chrome, write_run: "WriteRun", tmp_path: Path
) -> None:
    shapes: dict[str, Callable[[], list[Path]]] = {
        "one seed": lambda: [write_run(loss=[3.0, 0.02, 0.01])],
        "by time": lambda: [
            write_run("bsfl", seconds=[1.0] * 6, loss=[6, 5, 4, 3, 2, 1], horizon=6.0),
            write_run("random", seconds=[3.0] * 2, loss=[6, 3], horizon=6.0),
        ],
        "one evaluation": lambda: [
            write_run(label, seconds=[2.0], loss=[loss], accuracy=[0.5])
            for label, loss in (("bsfl", 1.0), ("random", 2.0))
        ],
    }
    write_report(shapes[kind](), tmp_path / "report", formats=())
    page = Page(chromium, tmp_path / "report" / "report.html")
    assert page.pixels(f"{chart('loss-seconds')} canvas", BLUE) > 10
    assert page.errors() == []


VIRIDIS_END = (253, 231, 37)


@pytest.mark.parametrize("num_clients", [40, 700])
def test_scores_are_drawn(
    num_clients: int, chromium: webdriver.Chrome, write_run: "WriteRun", tmp_path: Path
) -> None:
    folders = [
        write_candidates(write_run, NASTY, num_clients=num_clients),
        write_scored(write_run, "random", np.random.default_rng(0).random((12, num_clients))),
    ]
    write_report(folders, tmp_path / "report", formats=())
    page = Page(chromium, tmp_path / "report" / "report.html")
    score, counts = chart("score-1"), chart("candidates-0")
    assert page.pixels(f"{score} canvas", BLUE) > 30
    assert len(page.all(f"{score} .keys span")) == 10
    assert page.pixels(f"{counts} canvas", ORANGE) > 30
    keys = [key.text for key in page.all(f"{counts} .keys span")]
    assert keys == ["still candidates", "eliminated for validity", "dominated"]
    assert page.pixels(f"{chart('candidates-validity')} canvas", BLUE) > 30
    for plane in ("[data-plane='lasting-0']", "[data-plane='chosen-0']"):
        assert page.pixels(f"{plane} canvas", VIRIDIS_END) > 20
        assert page.pixels(f"{plane} canvas", ORANGE) > 100  # the Pareto front
    canvas = page.one("[data-plane='lasting-0'] > canvas")
    page.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
    where = page.run(
        "const plane = JSON.parse(document.getElementById('data').textContent).scores.planes[0];"
        "return plane.xEdges ? null : [plane.clients[0], plane.lasting[0], plane.chosen[0]]"
    )
    text = page.told(canvas, 40 if where is None else 16)
    if where is None:
        assert any(line.startswith("mean of a cell") for line in text)
    else:
        client, lasting, chosen = where
        assert any(
            line.startswith(f"client {client}validity")
            and line.endswith(f"rounds as a candidate{lasting} of 12times chosen{chosen}")
            for line in text
        )
    page.toggle(0)
    for gone in (counts, "[data-plane='lasting-0']", "[data-plane='chosen-0']"):
        assert not page.one(gone).is_displayed()
    assert page.one(score).is_displayed()
    page.toggle(0)
    assert page.pixels(f"{counts} canvas", ORANGE) > 30
    page.set_media(width=390, dark=True)
    page.settle()
    assert page.run("return document.documentElement.scrollWidth") <= 390
    assert page.pixels("[data-plane='lasting-0'] canvas", (255, 122, 69)) > 100  # in the dark
    assert page.errors() == []


def test_without_scores_there_are_no_such_sections(page: Page) -> None:
    for section in ("#scores", "#candidates"):
        assert not page.one(section).is_displayed()
