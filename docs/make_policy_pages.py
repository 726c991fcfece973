"""One page per policy, from its docstring. ``--check`` only says whether they are up to date."""

import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedmuster.policies import POLICIES

FOLDER = Path(__file__).parent / "policies"
SECTIONS = ("Args", "State", "Deviations", "References", "Example")
HEADINGS = {"Args": "Hyper-parameters"}


def page(name: str, policy: type[Any]) -> str:
    """The page of a policy."""
    text = inspect.cleandoc(policy.__doc__ or "")
    pattern = rf"^({'|'.join(SECTIONS)}):$"
    summary, *rest = re.split(pattern, text, flags=re.MULTILINE)
    parts = [f"# {policy.__name__} (`{name}`)", _code(summary.strip())]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        body = inspect.cleandoc(body.strip("\n"))
        parts.append(f"## {HEADINGS.get(title, title)}")
        if title == "Args":
            parts.append(_arguments(policy, body))
        elif title == "Example":
            parts.append(f"```python\n{body}\n```")
        else:
            parts.append(_code(body))
    parts.append(f"Source: `{Path(*policy.__module__.split('.'))}.py`")
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The list of all pages."""
    rows = []
    for name, policy in POLICIES.items():
        summary = inspect.cleandoc(policy.__doc__ or "").splitlines()[0]
        rows.append(f"| [`{name}`]({name}.md) | {_code(summary)} |")
    return "\n".join(["# Policies", "", "| policy | what it does |", "|---|---|", *rows]) + "\n"


def _arguments(policy: type[Any], body: str) -> str:
    plain = policy()  # every policy constructs with no arguments
    defaults = {item.name: getattr(plain, item.name) for item in fields(policy)}
    entries = re.split(r"^(\w+): ", body, flags=re.MULTILINE)[1:]
    rows = [
        f"| `{name}` | `{defaults[name]!r}` | {_code(' '.join(text.split()))} |"
        for name, text in zip(entries[::2], entries[1::2], strict=True)
    ]
    return "\n".join(["| name | default | meaning |", "|---|---|---|", *rows])


def _code(text: str) -> str:
    """Sphinx writes code in double back-ticks, Markdown in single ones."""
    return text.replace("``", "`")


def main() -> None:
    """Write the pages, or fail if they are not what they would be."""
    pages = {f"{name}.md": page(name, policy) for name, policy in POLICIES.items()}
    pages["README.md"] = index()
    if "--check" in sys.argv[1:]:
        stale = [
            file
            for file, text in pages.items()
            if not (FOLDER / file).is_file() or (FOLDER / file).read_text(encoding="utf-8") != text
        ]
        stale += [path.name for path in FOLDER.glob("*.md") if path.name not in pages]
        if stale:
            sys.exit(f"docs/policies is not up to date ({', '.join(stale)}): run `make docs`")
        return
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.md"):
        path.unlink()
    for file, text in pages.items():
        (FOLDER / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
