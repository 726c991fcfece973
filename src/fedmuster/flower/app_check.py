"""``fedmuster flower check``: whether a Flower app is ready for Muster, and what to write if not.

The manifest is read here. A process of its own (:mod:`.app_rehearsal`) imports both components,
runs the ServerApp's main function with every ``start()`` held back, lets Muster's own checks judge
the real objects, and plays a round.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from click import ClickException
from flwr.common.config import (
    flatten_dict,
    fuse_dicts,
    parse_config_args,
    validate_fields_in_config,
)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One statement about an app, with the file and line it is about and the lines to write."""

    level: Level
    about: str
    text: str
    where: str = ""
    write: str = ""


@dataclass(frozen=True, kw_only=True)
class Play:
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
    app = _table(manifest, "tool", "flwr", "app")
    config = _fused(flatten_dict(dict(_table(app, "config"))), _parse(run_config))
    federation = _parse(federation_config)
    project, components = _table(manifest, "project"), _table(app, "components")
    yield from _check_manifest(folder, manifest, text)
    server, client = (str(components.get(which)) for which in ("serverapp", "clientapp"))
    if server.count(":") != 1 or client.count(":") != 1:
        return  # the manifest's findings say so
    play = Play(
        folder=str(folder.resolve()),
        name=str(project.get("name", folder.resolve().name)),
        serverapp=server,
        clientapp=client,
        requirements={name: str(each) for name, each in _requirements(project).items()},
        nodes=nodes or federation.get("num-supernodes") or _num_supernodes(manifest),
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
            printed, _ = process.communicate(json.dumps(asdict(play)).encode(), play.seconds)
            ended = f"ended the process with code {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            ended = f"took longer than {play.seconds:g} s"
        lines = output.read_text(encoding="utf-8").splitlines()
    yield from (Finding(**json.loads(line)) for line in lines if line != "end")
    if not lines or lines[-1] != "end":
        last = [line for line in printed.decode(errors="replace").splitlines() if line.strip()]
        shown = "; it printed last: " + " | ".join(last[-3:]) if last else ""
        yield Finding(level="must change", about="app", text=f"the app {ended}{shown}")


def _parse(config: str) -> dict[str, Any]:
    try:
        return parse_config_args([config])
    except (ValueError, OSError, ClickException) as error:
        raise ConfigError(f"cannot read the config {config!r}: {error}") from None


def _fused(config: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    try:
        return fuse_dicts(config, overrides)
    except ValueError as error:
        known = ", ".join(config) or "none"
        raise ConfigError(f"--run-config: {error}; keys of the app's config: {known}") from None


def _table(table: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found: Any = table
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _num_supernodes(manifest: Mapping[str, Any]) -> int | None:
    """The nodes of a simulation, where the manifest says so in Flower's older place."""
    federations = _table(manifest, "tool", "flwr", "federations")
    options = _table(federations, str(federations.get("default")), "options")
    count = options.get("num-supernodes")
    return count if isinstance(count, int) else None


def _requirements(project: Mapping[str, Any]) -> dict[str, Requirement]:
    found: dict[str, Requirement] = {}
    for line in project.get("dependencies", []):
        try:
            requirement = Requirement(line)
        except (InvalidRequirement, TypeError):
            continue  # Flower's own check reports it
        found[canonicalize_name(requirement.name)] = requirement
    return found


def _check_manifest(folder: Path, manifest: dict[str, Any], text: str) -> Iterator[Finding]:
    """Whether Flower can run the app, and with a Flower that fedmuster supports."""

    def place(part: str) -> str:
        lines = text.splitlines()
        number = next((n for n, line in enumerate(lines, start=1) if part in line), 0)
        return f"{MANIFEST}:{number}" if number else MANIFEST

    def must_change(about: str, what: str, where: str = MANIFEST, write: str = "") -> Finding:
        return Finding(level="must change", about=about, text=what, where=where, write=write)

    project = _table(manifest, "project")
    _, errors, warnings = validate_fields_in_config(manifest)
    if not errors:
        try:
            normalize_and_validate_fab_format(manifest)
        except ValueError as misfit:
            errors = [str(misfit)]
    yield from (must_change("manifest", error) for error in errors)
    for warning in warnings:
        yield Finding(level="note", about="manifest", text=warning, where=MANIFEST)
    name = str(project.get("name", "")).strip()
    if "name" in project and not is_valid_name(name):
        what = (
            f"`flwr run` refuses the project's name {name!r}: it must start with a letter, have "
            f"only letters, digits and hyphens, and at most {_LONGEST_NAME} characters"
        )
        yield must_change("manifest", what, place("name"), f'name = "{mended_name(name)}"')
    elif not errors:
        yield Finding(level="ok", about="manifest", text=f"{name} is a Flower app")
    licence = project.get("license")
    file = licence.get("file") if isinstance(licence, Mapping) else None
    if isinstance(file, str) and not (folder / file).is_file():
        what = f"the licence file {file} is missing, and Flower packs the app with it"
        yield must_change("licence", what, place("license"), f"touch {folder / file}")
    installed = version("flwr")
    if SUPPORTED.contains(installed, prereleases=True):
        yield Finding(level="ok", about="flower", text=f"flwr {installed} is installed")
    else:
        what = f"flwr {installed} is installed, fedmuster supports {SUPPORTED}"
        yield must_change("flower", what, "", "pip install 'fedmuster[flower]'")
    requirements = _requirements(project)
    wanted = requirements.get("flwr")
    if wanted is not None and not wanted.specifier.contains(installed, prereleases=True):
        what = f"the app wants {wanted}, and flwr {installed} is installed"
        yield must_change("flower", what, place("flwr"), f'"flwr{SUPPORTED}",')
    if "fedmuster" not in requirements:
        yield Finding(
            level="note",
            about="dependencies",
            text="fedmuster is not among the app's dependencies: where Flower installs an app's "
            "dependencies, or on another machine, it will be missing",
            where=place("dependencies"),
            write='"fedmuster[flower]",',
        )


def is_valid_name(name: str) -> bool:
    """Whether ``flwr run`` packs an app of this name."""
    letters = all(letter.isalnum() or letter == "-" for letter in name)
    return 0 < len(name) <= _LONGEST_NAME and name[0].isalpha() and letters


def mended_name(name: str) -> str:
    """The nearest valid name."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")
    return (kept if kept[:1].isalpha() else f"app-{kept}")[:_LONGEST_NAME].strip("-")


def _without_manifest(folder: Path) -> Iterator[Finding]:
    yield Finding(
        level="must change",
        about="manifest",
        text=f"{folder} has no {MANIFEST}, so `flwr run` does not know the app",
        where=MANIFEST,
        write=_MANIFEST_EXAMPLE,
    )
    for path in sorted(folder.rglob("*.py")):
        for number, line in enumerate(_lines(path), start=1):
            if (old := _OLDEST_API.search(line)) is not None:
                yield Finding(
                    level="must change",
                    about="older API",
                    text=f"{old[1]} belongs to Flower's oldest API: write a ServerApp and a "
                    "ClientApp",
                    where=f"{path.relative_to(folder)}:{number}",
                )


def _lines(path: Path) -> Sequence[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


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
