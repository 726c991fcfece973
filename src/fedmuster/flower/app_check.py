"""``fedmuster flower check``: whether a Flower app is ready for Muster, and what to write if not.

The manifest is read here. A process of its own (:mod:`.app_rehearsal`) imports both components,
runs the ServerApp's main function with every ``start()`` held back, lets Muster's own checks judge
the real objects, and plays a round.
"""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from click import ClickException
from flwr.common import config as flower_config
from flwr.supercore.fab_format_version import normalize_and_validate_fab_format
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fedmuster.core.errors import ConfigError
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE

SUPPORTED: Final = SpecifierSet(">=1.39,<1.43")
"""The versions of Flower that fedmuster supports: those of the extra ``flower``."""
MANIFEST: Final = "pyproject.toml"
Level = Literal["ok", "note", "must change"]

_LONGEST_NAME: Final = 32
_OLDEST_API: Final = re.compile(r"\b(start_server|start_simulation|start_numpy_client)\(")
_QUIET: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_MANIFEST_EXAMPLE: Final = """\
[project]
name = "my-app"
version = "1.0.0"
dependencies = ["flwr>=1.39,<1.43", "fedmuster[flower]"]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "my_app.server_app:app"
clientapp = "my_app.client_app:app"
"""


class Finding(NamedTuple):
    """One statement about an app, with the file and line it is about and the lines to write."""

    level: Level
    about: str
    text: str
    where: str = ""
    write: str = ""


class Play(NamedTuple):
    """What the process that runs an app is told; ``nodes`` is None for as many as it needs."""

    folder: str
    name: str
    serverapp: str
    clientapp: str
    requirements: dict[str, str]
    nodes: int | None
    seconds: float
    run_config: dict[str, Any]
    node_config: dict[str, Any]
    rehearse: bool


def check(
    folder: Path,
    *,
    rehearse: bool = True,
    nodes: int | None = None,
    seconds: float = 120.0,
    run_config: str = "",
    node_config: str = "",
    federation_config: str = "",
) -> Iterator[Finding]:
    """Check the Flower app in ``folder``; findings come as they are made.

    Args:
        folder: holds the app's ``pyproject.toml``.
        rehearse: whether to play a round where nothing must change.
        nodes: nodes of the rehearsal; None for those of ``federation_config``, or as needed.
        seconds: after which the app's process is ended.
        run_config: overrides of the app's config, as for ``flwr run --run-config``.
        node_config: config of every node, as for ``flower-supernode --node-config``.
        federation_config: as for ``flwr run --federation-config``; ``num-supernodes`` counts.

    Raises:
        ConfigError: there is no such folder, its ``pyproject.toml`` is not TOML, or a config cannot
            be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder, expected that of a Flower app")
    path = folder / MANIFEST
    if not path.is_file():
        yield from _without_manifest(folder)
        return
    try:
        text = path.read_text(encoding="utf-8")
        manifest = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    project, app = _table(manifest, "project"), _table(manifest, "tool", "flwr", "app")
    config = flower_config.flatten_dict(dict(_table(app, "config")))
    try:
        config = flower_config.fuse_dicts(config, _parse(run_config))
    except ValueError as error:
        known = ", ".join(config) or "none"
        raise ConfigError(f"--run-config: {error}; keys of the app's config: {known}") from None
    # Flower's older manifests say how many nodes a simulation has.
    federations = _table(manifest, "tool", "flwr", "federations")
    options = _table(federations, str(federations.get("default")), "options")
    federation = {**options, **_parse(federation_config)}
    requirements = _requirements(project)
    yield from _check_manifest(folder, manifest, text, requirements)
    components = _table(app, "components")
    server, client = (str(components.get(which)) for which in ("serverapp", "clientapp"))
    if server.count(":") != 1 or client.count(":") != 1:
        return  # the manifest's findings say so
    play = Play(
        folder=str(folder.resolve()),
        name=str(project.get("name", folder.resolve().name)),
        serverapp=server,
        clientapp=client,
        requirements={name: str(each) for name, each in requirements.items()},
        nodes=nodes or federation.get("num-supernodes"),
        seconds=seconds,
        run_config=config,
        node_config=_parse(node_config),
        rehearse=rehearse,
    )
    yield from _played(play)


def _played(play: Play) -> Iterator[Finding]:
    """The findings of the app's own process, also of one that is killed or ends by itself."""
    with tempfile.TemporaryDirectory(prefix="fedmuster-") as folder:
        output, work = Path(folder) / "findings.jsonl", Path(folder) / "work"
        work.mkdir()
        output.touch()
        process = subprocess.Popen(
            # -P: the current folder must not hide modules of the app.
            [sys.executable, "-P", "-m", "fedmuster.flower.app_rehearsal", str(output)],
            cwd=work,
            # A rehearsal's ledger must leave no trace among the user's.
            env=os.environ | _QUIET | {STATE_FOLDER_VARIABLE: str(Path(folder) / "state")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what the app itself starts ends with it
        )
        try:
            printed, _ = process.communicate(json.dumps(play).encode(), play.seconds)
            ended = f"ended the process with code {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            ended = f"took longer than {play.seconds:g} s"
        lines = output.read_text(encoding="utf-8").splitlines()
    yield from (Finding(*json.loads(line)) for line in lines if line != "end")
    if not lines or lines[-1] != "end":
        last = [line for line in printed.decode(errors="replace").splitlines() if line.strip()]
        shown = "; it printed last: " + " | ".join(last[-3:]) if last else ""
        yield Finding("must change", "app", f"the app {ended}{shown}")


def _parse(config: str) -> dict[str, Any]:
    try:
        return flower_config.parse_config_args([config])
    except (ValueError, OSError, ClickException) as error:
        raise ConfigError(f"cannot read the config {config!r}: {error}") from None


def _table(table: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found: Any = table
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _requirements(project: Mapping[str, Any]) -> dict[str, Requirement]:
    found: dict[str, Requirement] = {}
    for line in project.get("dependencies", []):
        try:
            requirement = Requirement(line)
        except (InvalidRequirement, TypeError):
            continue  # Flower's own check reports it
        found[canonicalize_name(requirement.name)] = requirement
    return found


def _check_manifest(
    folder: Path, manifest: dict[str, Any], text: str, requirements: Mapping[str, Requirement]
) -> Iterator[Finding]:
    """Whether Flower can run the app, and with a Flower that fedmuster supports."""

    def place(part: str) -> str:
        lines = enumerate(text.splitlines(), start=1)
        return next((f"{MANIFEST}:{n}" for n, line in lines if part in line), MANIFEST)

    project = _table(manifest, "project")
    _, errors, warnings = flower_config.validate_fields_in_config(manifest)
    if not errors:
        try:
            normalize_and_validate_fab_format(manifest)
        except ValueError as misfit:
            errors = [str(misfit)]
    yield from (Finding("must change", "manifest", error, MANIFEST) for error in errors)
    yield from (Finding("note", "manifest", warning, MANIFEST) for warning in warnings)
    name = str(project.get("name", "")).strip()
    if "name" in project and not is_valid_name(name):
        what = (
            f"`flwr run` refuses the project's name {name!r}: it must start with a letter, have "
            f"only letters, digits and hyphens, and at most {_LONGEST_NAME} characters"
        )
        write = f'name = "{mended_name(name)}"'
        yield Finding("must change", "manifest", what, place("name"), write)
    elif not errors:
        yield Finding("ok", "manifest", f"{name} is a Flower app")
    file = _table(project, "license").get("file")
    if isinstance(file, str) and not (folder / file).is_file():
        what = f"the licence file {file} is missing, and Flower packs the app with it"
        yield Finding("must change", "licence", what, place("license"), f"touch {folder / file}")
    installed = version("flwr")
    if SUPPORTED.contains(installed, prereleases=True):
        yield Finding("ok", "flower", f"flwr {installed} is installed")
    else:
        what = f"flwr {installed} is installed, fedmuster supports {SUPPORTED}"
        yield Finding("must change", "flower", what, write="pip install 'fedmuster[flower]'")
    wanted = requirements.get("flwr")
    if wanted is not None and not wanted.specifier.contains(installed, prereleases=True):
        what = f"the app wants {wanted}, and flwr {installed} is installed"
        yield Finding("must change", "flower", what, place("flwr"), f'"flwr{SUPPORTED}",')
    if "fedmuster" not in requirements:
        what = (
            "fedmuster is not among the app's dependencies: where Flower installs an app's "
            "dependencies, or on another machine, it will be missing"
        )
        where = place("dependencies")
        yield Finding("note", "dependencies", what, where, '"fedmuster[flower]",')


def is_valid_name(name: str) -> bool:
    """Whether ``flwr run`` packs an app of this name."""
    letters = all(letter.isalnum() or letter == "-" for letter in name)
    return 0 < len(name) <= _LONGEST_NAME and name[0].isalpha() and letters


def mended_name(name: str) -> str:
    """The nearest valid name."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")
    return (kept if kept[:1].isalpha() else f"app-{kept}")[:_LONGEST_NAME].strip("-")


def _without_manifest(folder: Path) -> Iterator[Finding]:
    text = f"{folder} has no {MANIFEST}, so `flwr run` does not know the app"
    yield Finding("must change", "manifest", text, MANIFEST, _MANIFEST_EXAMPLE)
    for path in sorted(folder.rglob("*.py")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if (old := _OLDEST_API.search(line)) is not None:
                text = f"{old[1]} belongs to Flower's oldest API: write a ServerApp and a ClientApp"
                where = f"{path.relative_to(folder)}:{number}"
                yield Finding("must change", "older API", text, where)


def explain(problem: BaseException, folder: Path) -> tuple[str, str]:
    """An error in a line, and the last of the app's own lines that led to it."""
    frames = list(traceback.extract_tb(problem.__traceback__))
    text = f"{type(problem).__name__}: {problem}".strip(": \n").partition("\n\n")[0]
    if isinstance(problem, SyntaxError) and problem.filename:
        text = f"SyntaxError: {problem.msg}"
        frames.append(traceback.FrameSummary(problem.filename, problem.lineno, ""))
    if isinstance(problem, KeyError):
        text += "; what an app reads from node_config is given with --node-config"
    if isinstance(problem, FileNotFoundError):
        text += "; a rehearsal works in an empty folder: give absolute paths"
    return text, last_own(frames, folder)


def own_frames(
    frames: Iterable[traceback.FrameSummary], folder: Path
) -> list[traceback.FrameSummary]:
    """The frames of the app's own code."""
    return [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]


def last_own(frames: Iterable[traceback.FrameSummary], folder: Path) -> str:
    """``file:line`` of the last frame of the app's own code; empty where there is none."""
    own = own_frames(frames, folder)
    return f"{Path(own[-1].filename).relative_to(folder)}:{own[-1].lineno}" if own else ""


def older_names(folder: Path) -> list[str]:
    """Classes of Flower's older API in the app's modules."""
    modules = [module for module in sys.modules.values() if getattr(module, "__file__", None)]
    own = [module for module in modules if Path(str(module.__file__)).is_relative_to(folder)]
    kinds = {value for module in own for value in vars(module).values() if isinstance(value, type)}
    old = [kind for kind in kinds if kind.__module__.startswith(("flwr.server.", "flwr.compat."))]
    return sorted(f"{kind.__module__}.{kind.__name__}" for kind in old)


def lines_to_write(folder: Path, where: str, settings: str) -> tuple[str, str]:
    """Where Muster belongs for the ``strategy.start(…)`` at ``file:line``, and its lines.

    That is above the statement, or above the outermost loop around it that does not make the
    strategy.
    """
    file, _, line = where.rpartition(":")
    tree = ast.parse((folder / file).read_text(encoding="utf-8")) if file else ast.Module([], [])
    around = [  # outermost first
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= int(line) <= (node.end_lineno or 0)
    ]
    started, name, place, indent = "strategy", "strategy", "Write above", 4
    for call in ast.walk(around[-1]) if around else ():
        if isinstance(call, ast.Attribute) and call.attr == "start":
            started = ast.unparse(call.value)
            name = started if isinstance(call.value, ast.Name | ast.Attribute) else name
            above = around.pop()
            while around and not isinstance(outer := around.pop(), ast.FunctionDef):
                named = [n for n in ast.walk(outer) if isinstance(n, ast.Name | ast.Attribute)]
                if name in {ast.unparse(n) for n in named if isinstance(n.ctx, ast.Store)}:
                    break
                above = outer if isinstance(outer, ast.For | ast.While) else above
            place = f"Write the import at the top of {file}, the rest above line {above.lineno}"
            place += "" if name == started else f", and start {name} there"
            indent = above.col_offset
            break
    muster = f"{' ' * indent}{name} = Muster({started}, {settings})"
    return place, f"from fedmuster.flower import Muster\n{muster}"
