"""What stands in the page before any script runs; see test_report_browser.py for the rest."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedmuster.report.page import to_html
from fedmuster.report.page.html import headline, opening
from fedmuster.report.page.page_data import MOST_CLIENTS, client_tables, page_data
from fedmuster.report.participation import choice_density, resolution
from fedmuster.report.runs import Comparison, load
from fedmuster.report.summary import summarise

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

NAN = math.nan


class _Scripts(HTMLParser):
    """The elements that hold text as it is, and every tag that was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open = ""
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "pre": []}
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open = tag
        if tag in self.texts:
            self.texts[tag].append("")
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.open in self.texts:
            self.texts[self.open][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.open = ""


def _parsed(html: str) -> _Scripts:
    parser = _Scripts()
    parser.feed(html)
    return parser


@pytest.fixture
def comparison(write_run: "WriteRun") -> Comparison:
    return load(
        [
            write_run(
                label,
                seed,
                accuracy=[NAN, 0.5, 0.8 + bonus + seed / 100],
                loss=[NAN, 1.0, 0.5],
                regret=[1.0, 1.0, bonus],
                versions={"fedmuster": "1", "<b>": "</script>"},
            )
            for label, bonus in (("bsfl", 0.1), ("random", 0.0))
            for seed in (0, 1)
        ]
    )


def test_nothing_of_users_becomes_markup(write_run: "WriteRun") -> None:
    labels = ("<script>alert(1)<!--", "\u2028 ]]> <!-- \"'&", "$title ${script} {0}")
    folders = [write_run(label, loss=[1.0, 0.9, 0.8]) for label in labels]
    parsed = _parsed(to_html(summarise(load(folders))))
    assert parsed.tags.count("script") == 2
    assert not {"b", "img", "iframe"} & set(parsed.tags)
    assert json.loads(parsed.texts["script"][0])["policies"] == list(labels)
    assert "<" not in parsed.texts["script"][0]
    assert labels[2] in parsed.texts["pre"][0]


def test_only_these_scripts_may_run_and_nothing_is_loaded(comparison: Comparison) -> None:
    html = to_html(summarise(comparison))
    parsed = _parsed(html)

    def fingerprint(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert parsed.policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{fingerprint(parsed.texts['script'][1])}'" in parsed.policy
    assert f"style-src 'sha256-{fingerprint(parsed.texts['style'][0])}'" in parsed.policy
    assert not re.search(r"<[^>]+\b(src|href)=(?!\"data:,\")", html)
    assert not re.search(r"url\(|@import", parsed.texts["style"][0])


def test_it_is_small_and_complete(comparison: Comparison) -> None:
    html = to_html(summarise(comparison))
    assert len(html.encode()) < 150_000
    assert comparison.experiment.to_toml().splitlines()[0] in html
    assert "fedmuster 1, &lt;b&gt; &lt;/script&gt;" in html
    assert "reached in" not in html
    for text in ("Time to 80\N{NO-BREAK SPACE}%", "Compared with random", "Regret", "Evenness"):
        assert text in html


def test_notes_are_told_first(write_run: "WriteRun") -> None:
    html = to_html(summarise(load([write_run(planned=50)])))
    assert html.index("first 3 of 50 rounds") < html.index("<main>")


def test_charts_hold_the_means(comparison: Comparison) -> None:
    charts = {chart["name"]: chart for chart in page_data(summarise(comparison))["charts"]}
    assert list(charts) == [
        "accuracy-seconds",
        "accuracy-round",
        "loss-seconds",
        "loss-round",
        "regret-total",
        "seconds-total",
    ]
    chart = charts["accuracy-seconds"]
    assert chart["x"] == [3.0, 6.0]
    assert chart["curves"][0]["mean"] == [0.5, 0.905]
    assert chart["mark"] == {"value": 0.8, "text": "target 80 %", "within": False}
    assert charts["regret-total"]["curves"][0]["mean"] == [1.0, 2.0, 2.1]


def test_heat_maps_come_back_from_their_bytes(comparison: Comparison) -> None:
    maps = page_data(summarise(comparison))["maps"]
    rows, bins = resolution(comparison)
    codes = np.frombuffer(base64.b64decode(maps["codes"][0]), dtype=np.uint8).reshape(rows, bins)
    density = choice_density(comparison.runs["bsfl"], rows=rows, bins=bins)
    seen = np.where(codes == 0, 0.0, 2.0 ** ((codes.astype(float) - 128) / 32))
    np.testing.assert_allclose(seen, density, rtol=0.011)


def _clients(number: int) -> dict[str, Any]:
    return {
        "group": np.zeros(number, dtype=np.int64),
        "typical_latency_seconds": np.random.default_rng(0).permutation(np.linspace(1, 2, number)),
    }


def test_of_too_many_clients_every_speed_is_shown(write_run: "WriteRun") -> None:
    table = client_tables(load([write_run(clients=_clients(25_000))]))
    (seed,) = table["seeds"]
    assert table["clients"] == 25_000
    assert len(seed["client"]) == len(set(seed["client"])) == MOST_CLIENTS
    latency = np.sort(seed["columns"]["latency"])
    assert latency[[0, MOST_CLIENTS // 2, -1]] == pytest.approx([1.0, 1.5, 2.0], abs=1e-3)


def test_as_many_seeds_as_the_page_can_bear(write_run: "WriteRun") -> None:
    folders = [write_run(seed=seed, clients=_clients(9_000)) for seed in range(6)]
    table = client_tables(load(folders))
    assert (len(table["seeds"]), table["allSeeds"]) == (4, 6)


def test_the_opening_says_who_comes_first(comparison: Comparison) -> None:
    summary = summarise(comparison)
    assert headline(summary) == "2 policies on digits"
    text = opening(summary)
    assert text.startswith("Each of 2 policies chose 2 of 4 clients a round, for 3 rounds in the ")
    assert "the chosen trained mlp on digits (iid)." in text
    assert "Time to 80 %: bsfl comes first with 6.0000 ± 0 s against random's 6.0000 ± 0 s" in text
    assert text.endswith("no significant difference (equal in every seed).")


def test_the_opening_when_nobody_gets_there(comparison: Comparison) -> None:
    text = opening(summarise(comparison, target=0.99))
    assert text.endswith("Time to 99 %: no policy got there in every seed.")


def test_the_opening_when_the_baseline_does_not_get_there(comparison: Comparison) -> None:
    assert opening(summarise(comparison, target=0.81)).endswith(
        "Time to 81 %: bsfl comes first of those that get there in every seed, with 6.0000 ± 0 s "
        "(random, the baseline: reached in 1 of 2 seeds)."
    )


def test_the_opening_without_a_model(write_run: "WriteRun") -> None:
    folders = [write_run("bsfl", seconds=[1.0]), write_run("random", seconds=[3.0])]
    assert opening(summarise(load(folders))).endswith(
        "Simulated time: bsfl comes first with 1.0000 s against random's 3.0000 s: −2.0000 s "
        "(one seed: no interval)."
    )
    assert "comes first" not in opening(summarise(load(folders[:1])))
