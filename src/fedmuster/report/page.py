"""A comparison as one HTML file that needs nothing else: no network, no folder beside it."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from fedmuster.core.words import plain, several
from fedmuster.report.page_data import page_data
from fedmuster.report.runs import Comparison
from fedmuster.report.summary import Summary
from fedmuster.report.tables import Table, difference_text, mean_text, tables, target_table

_FIRST = (
    "seconds_to_target",
    "answers_a_second",
    "utility",
    "utility_a_round",
    "rounds",
    "simulated_seconds",
    "wall_clock_seconds",
)
"""The opening tells the first of these metrics that was measured."""


def headline(summary: Summary) -> str:
    """The page's title: the policies, and what was learned, or else where."""
    comparison = summary.comparison
    training = comparison.experiment.training
    labels = comparison.labels
    who = labels[0] if len(labels) == 1 else several(len(labels), "policy", "policies")
    if comparison.real:
        return f"{who} in a real federation"
    subject = comparison.experiment.world.name if training is None else training.data.name
    return f"{who} on {subject}"


def opening(summary: Summary) -> str:
    """One paragraph: what was run, and what came out first."""
    return " ".join([_setting(summary.comparison), *_findings(summary)])


def _setting(comparison: Comparison) -> str:
    experiment = comparison.experiment
    length = comparison.length
    if experiment.seconds is not None:
        length = f"{plain(experiment.seconds)} simulated seconds"
    labels = comparison.labels
    who = labels[0] if len(labels) == 1 else f"Each of {len(labels)} policies"
    verb = "chose" if comparison.network is None else "placed"
    where = "a real federation" if comparison.real else f"the world {experiment.world.name}"
    text = (
        f"{who} {verb} {comparison.who_is_chosen}, for {length} in {where}, with "
        f"{several(len(comparison.seeds), 'seed')}"
    )
    if (training := experiment.training) is None:
        return f"{text}."
    return (
        f"{text}; the chosen trained {training.model.name} on {training.data.name} "
        f"({training.partition.name})."
    )


def _findings(summary: Summary) -> Iterable[str]:
    if len(summary.policies) == 1:
        return
    by_key = {metric.key: metric for metric in summary.tested}
    metric = next(by_key[key] for key in _FIRST if key in by_key)
    base = summary.base
    ranked = [policy for policy in summary.policies if policy.everywhere(metric.key)]
    if not ranked:
        yield f"{metric.title}: no policy got there in every seed."
        return
    sign = -1.0 if metric.better == "higher" else 1.0
    best = min(ranked, key=lambda policy: sign * policy.means[metric.key].mean)
    unit = f" {metric.unit}".rstrip()
    first = "comes first"
    if len(ranked) < len(summary.policies):
        first += " of those that get there in every seed,"
    yield f"{metric.title}: {best.label} {first} with {mean_text(metric, best)}{unit}"
    if best is base:
        yield "(the baseline); see below which of the others differ significantly from it."
    elif base in ranked:
        yield (
            f"against {base.label}'s {mean_text(metric, base)}{unit}: "
            f"{difference_text(metric, best, base)}."
        )
    else:
        yield f"({base.label}, the baseline: {mean_text(metric, base)})."


# The file itself: text and tables that need no script, then data and scripts that draw.

_STYLES = ("uPlot-1.6.32.min.css", "page.css")
_LIBRARY = "uPlot-1.6.32.min.js"
_SCRIPTS = (
    *("dom", "policies", "charts", "bars", "canvases", "heatmaps"),
    *("jobs", "network", "scores", "clients", "start"),
)

_SIMULATED = "Save it as a file and run it again with <code>fedmuster run</code>."
_REAL = (
    "These are the settings of a federation of real clients. <code>flwr run</code> of the same "
    "app, or the same job of NVIDIA FLARE, with the same folder continues it; "
    "<code>fedmuster run</code> cannot repeat it."
)


def to_html(summary: Summary) -> str:
    """The page.

    Names given by users are text: escaped in HTML, never markup in a script. A content policy in
    the page's head lets the browser run these scripts alone and load nothing at all.
    """
    style = "\n".join(map(_asset, _STYLES))
    scripts = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    script = f'{_asset(_LIBRARY)}\n(() => {{\n"use strict";\n{scripts}}})();\n'
    comparison = summary.comparison
    return Template(_asset("page.html")).substitute(
        content_policy=(
            f"default-src 'none'; script-src '{_fingerprint(script)}'; "
            f"style-src '{_fingerprint(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
        title=escape(headline(summary)),
        opening=_prose(opening(summary)),
        notes=_notes(comparison.notes),
        first_table="" if summary.target is None else _table(target_table(summary)),
        tables="\n".join(map(_table, tables(summary))),
        groups_hint=_groups_hint(comparison),
        how_to_repeat=_REAL if comparison.real else _SIMULATED,
        spec=escape(comparison.experiment.to_toml()),
        versions=_versions(comparison.versions),
        data=_json(page_data(summary)),
        style=style,
        script=script,
    )


def _groups_hint(comparison: Comparison) -> str:
    share = "In which share of the rounds a client of each group is chosen"
    if comparison.round_less:
        share = "Which share of all client updates a client of each group made"
    return (
        f"{share}; groups from fast to slow, by their mean latency. The dashed line: all clients "
        "alike. A bar with an arrow is higher than the axis."
    )


def _asset(name: str) -> str:
    return (files("fedmuster.report") / "assets" / name).read_text(encoding="utf-8")


def _fingerprint(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def _json(data: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element: no ``<`` can end it or begin a comment in it."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = "\n".join(
        f'<tr data-policy="{escape(label)}"><th scope="row">{escape(label)}</th>'
        + "".join(f"<td>{_prose(cell)}</td>" for cell in cells)
        + "</tr>"
        for label, *cells in table.rows
    )
    notes = "".join(f"<p class=footnote>{escape(note)}</p>" for note in table.footnotes)
    return (
        f'<div class="scroll"><table><caption>{escape(table.title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>{notes}"
    )


def _prose(text: str) -> str:
    """Escaped, and numbers not torn from their units at the end of a line."""
    return re.sub(r"(?<=\d) (?=[%s±])|(?<=±) ", "\N{NO-BREAK SPACE}", escape(text))


def _notes(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes" aria-label="Notes">{items}</ul>' if items else ""


def _versions(versions: Iterable[Mapping[str, str]]) -> str:
    lines = (
        ", ".join(f"{escape(name)} {escape(version)}" for name, version in entry.items())
        for entry in versions
    )
    return "".join(f"<li>{line}</li>" for line in lines)
