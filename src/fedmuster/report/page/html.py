"""The file itself: text and tables that need no script, then data and scripts that draw."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from fedmuster.report.page.data import page_data
from fedmuster.report.page.prose import headline, opening
from fedmuster.report.summary import Summary
from fedmuster.report.tables import Table, tables, target_table

_STYLES = ("uPlot-1.6.32.min.css", "page.css")
_SIMULATED = "Save it as a file and run it again with <code>fedmuster run</code>."
_REAL = (
    "These are the settings of a federation of real clients. <code>flwr run</code> of the same app "
    "with the same folder continues it; <code>fedmuster run</code> cannot repeat it."
)
_LIBRARIES = ("uPlot-1.6.32.min.js",)
_SCRIPTS = (
    "dom",
    "policies",
    "charts",
    "bars",
    "heatmaps",
    "planes",
    "network",
    "scores",
    "clients",
    "start",
)


def to_html(summary: Summary) -> str:
    """The page.

    Whatever users named themselves is text: escaped in HTML, never markup in a script. And a
    policy in the page's head lets the browser run these scripts alone and load nothing at all.
    """
    style = "\n".join(map(_asset, _STYLES))
    script = "\n".join(map(_asset, _LIBRARIES)) + _closed_off(
        _asset(f"{name}.js") for name in _SCRIPTS
    )
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
        how_to_repeat=_REAL if comparison.real else _SIMULATED,
        spec=escape(comparison.experiment.to_toml()),
        versions=_versions(comparison.versions),
        data=_json(page_data(summary)),
        style=style,
        script=script,
    )


def _asset(name: str) -> str:
    return (files("fedmuster.report") / "assets" / name).read_text(encoding="utf-8")


def _closed_off(scripts: Iterable[str]) -> str:
    return '\n(() => {\n"use strict";\n' + "\n".join(scripts) + "})();\n"


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
