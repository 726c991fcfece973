"""Load a component of an app as Flower does. A script for a process of its own.

It is run by its path, so that it costs what the app costs and not all of fedmuster: it imports
nothing but the standard library and Flower.
"""

import json
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A component as it was found by importing it.

    Args:
        kind: its class; empty where it could not be imported.
        mods: last names of the classes or functions of a ClientApp's mods; None if not known.
        problem: why it could not be imported.
        missing: the module that was not found, if that was why.
        where: the line of the app that failed.
    """

    kind: str = ""
    mods: list[str] | None = None
    problem: str = ""
    missing: str = ""
    where: str = ""


def load(folder: Path, reference: str) -> Loaded:
    """Import ``module:attribute`` from an app's folder."""
    from flwr.supercore.object_ref import load_app

    try:
        component = load_app(reference, AttributeError, folder)
    except BaseException as problem:  # an app may also raise SystemExit
        text, where = explain(problem, folder)
        missing = problem.name or "" if isinstance(problem, ModuleNotFoundError) else ""
        return Loaded(problem=text, missing=missing, where=where)
    mods = getattr(component, "_mods", None)
    return Loaded(
        kind=type(component).__name__,
        mods=None if mods is None else [_name(mod) for mod in mods],
    )


def explain(problem: BaseException, folder: Path) -> tuple[str, str]:
    """What went wrong, in a line, and where in the app's own files."""
    if isinstance(problem, SyntaxError) and problem.filename:
        text = f"{type(problem).__name__}: {problem.msg}"
        frames = [(problem.filename, problem.lineno)]
    else:
        text = f"{type(problem).__name__}: {problem}".strip(": \n").partition("\n\n")[0]
        frames = [(f.filename, f.lineno) for f in traceback.extract_tb(problem.__traceback__)]
    own = [(Path(file), line) for file, line in frames if Path(file).is_relative_to(folder)]
    return text, f"{own[-1][0].relative_to(folder)}:{own[-1][1]}" if own else ""


def _name(mod: object) -> str:
    """Of a mod that is a function, or of its class."""
    return str(getattr(mod, "__name__", type(mod).__name__))


if __name__ == "__main__":
    output, folder, reference = sys.argv[1:]
    found = asdict(load(Path(folder), reference))
    Path(output).write_text(json.dumps(found), encoding="utf-8")
