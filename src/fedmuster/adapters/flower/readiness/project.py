"""What the app says about itself in its ``pyproject.toml``."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from flwr.common.config import validate_fields_in_config
from flwr.supercore.fab_format_version import normalize_and_validate_fab_format
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.names import LONGEST, is_valid, mended
from fedmuster.core.errors import ConfigError

SUPPORTED: Final = SpecifierSet(">=1.39,<1.43")
"""The versions of Flower that fedmuster is made for: those of the extra ``flower``."""

MANIFEST: Final = "pyproject.toml"
Component = Literal["serverapp", "clientapp"]


@dataclass(frozen=True)
class Project:
    """An app's folder and its ``pyproject.toml``; None where it has none."""

    folder: Path
    manifest: Mapping[str, Any] | None
    text: str = ""

    @classmethod
    def load(cls, folder: Path) -> "Project":
        """Read it.

        Raises:
            ConfigError: there is no such folder, or the file is not TOML.
        """
        if not folder.is_dir():
            raise ConfigError(
                f"{folder} is no folder, expected that of a Flower app, with its {MANIFEST}"
            )
        path = folder / MANIFEST
        if not path.is_file():
            return cls(folder, None)
        try:
            text = path.read_text(encoding="utf-8")
            return cls(folder, tomllib.loads(text), text)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None

    @property
    def name(self) -> str:
        """Of the app."""
        return str(self._table("project").get("name", self.folder.resolve().name))

    def component(self, which: Component) -> str | None:
        """``module:attribute`` of the ServerApp or the ClientApp."""
        found = self._table("tool", "flwr", "app", "components").get(which)
        return found if isinstance(found, str) and found.count(":") == 1 else None

    @property
    def complete(self) -> bool:
        """Whether it names a ServerApp and a ClientApp."""
        return None not in (self.component("serverapp"), self.component("clientapp"))

    @cached_property
    def run_config(self) -> dict[str, Any]:
        """``context.run_config`` as ``flwr run`` gives it where nothing is overridden."""
        return dict(_flat(self._table("tool", "flwr", "app", "config"), ""))

    @property
    def num_nodes(self) -> int | None:
        """How many nodes a simulation of it has, where the app says so."""
        federations = self._table("tool", "flwr", "federations")
        chosen = federations.get(str(federations.get("default")), {})
        options = chosen.get("options", {}) if isinstance(chosen, Mapping) else {}
        count = options.get("num-supernodes") if isinstance(options, Mapping) else None
        return count if isinstance(count, int) else None

    @property
    def requirements(self) -> dict[str, Requirement]:
        """What it depends on, by name."""
        found: dict[str, Requirement] = {}
        for line in self._table("project").get("dependencies", []):
            try:
                requirement = Requirement(line)
            except (InvalidRequirement, TypeError):
                continue  # Flower complains about it, better than we could
            found[canonicalize_name(requirement.name)] = requirement
        return found

    def line_with(self, text: str) -> str:
        """The manifest, and its first line with ``text``, if it has one."""
        for number, line in enumerate(self.text.splitlines(), start=1):
            if text in line:
                return f"{MANIFEST}:{number}"
        return MANIFEST

    def _table(self, *path: str) -> Mapping[str, Any]:
        table: Any = self.manifest
        for key in path:
            table = table.get(key) if isinstance(table, Mapping) else None
        return table if isinstance(table, Mapping) else {}


def check_project(project: Project) -> Iterator[Finding]:
    """Whether Flower can run it, and with a Flower that fedmuster knows."""
    if project.manifest is None:
        yield Finding(
            level="must change",
            about="manifest",
            text=f"{project.folder} has no {MANIFEST}, so `flwr run` does not know it",
            where=MANIFEST,
            write=_MANIFEST_EXAMPLE,
        )
        return
    manifest = dict(project.manifest)
    _, errors, warnings = validate_fields_in_config(manifest)
    if not errors:
        try:
            normalize_and_validate_fab_format(manifest)
        except ValueError as misfit:
            errors = [str(misfit)]
    for error in errors:
        yield Finding(level="must change", about="manifest", text=error, where=MANIFEST)
    for warning in warnings:
        yield Finding(level="note", about="manifest", text=warning, where=MANIFEST)
    refused = list(_check_name(project))
    yield from refused
    if not errors and not refused:
        yield Finding(level="ok", about="manifest", text=f"{project.name} is a Flower app")
    yield from _check_licence(project)
    yield from _check_versions(project)


def _check_name(project: Project) -> Iterator[Finding]:
    name = project.name.strip()
    if "name" in project._table("project") and not is_valid(name):
        yield Finding(
            level="must change",
            about="manifest",
            text=f"`flwr run` refuses the project's name {name!r}: it must start with a letter, "
            f"have only letters, digits and hyphens, and at most {LONGEST} characters",
            where=project.line_with("name"),
            write=f'name = "{mended(name)}"',
        )


def _check_licence(project: Project) -> Iterator[Finding]:
    licence = project._table("project").get("license")
    file = licence.get("file") if isinstance(licence, Mapping) else None
    if isinstance(file, str) and not (project.folder / file).is_file():
        yield Finding(
            level="must change",
            about="licence",
            text=f"the licence file {file} is not there, and Flower packs the app with it",
            where=project.line_with("license"),
            write=f"touch {project.folder / file}",
        )


def _check_versions(project: Project) -> Iterator[Finding]:
    installed = version("flwr")
    fits = SUPPORTED.contains(installed, prereleases=True)
    yield Finding(
        level="ok" if fits else "must change",
        about="flower",
        text=f"flwr {installed} is installed, fedmuster is made for {SUPPORTED}",
        write="" if fits else "pip install 'fedmuster[flower]'",
    )
    wanted = project.requirements.get("flwr")
    if wanted is not None and not wanted.specifier.contains(installed, prereleases=True):
        yield Finding(
            level="must change",
            about="flower",
            text=f"the app wants {wanted}, and flwr {installed} is installed",
            where=project.line_with("flwr"),
            write=f'"flwr{SUPPORTED}",',
        )
    if "fedmuster" not in project.requirements:
        yield Finding(
            level="note",
            about="dependencies",
            text="fedmuster is not among the app's dependencies: where Flower installs an app's "
            "dependencies, or on another machine, it will be missing",
            where=project.line_with("dependencies"),
            write='"fedmuster[flower]",',
        )


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


_MANIFEST_EXAMPLE: Final = """\
[project]
name = "my-app"
version = "1.0.0"
description = "…"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.39,<1.43", "fedmuster[flower]"]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "my_app.server_app:app"
clientapp = "my_app.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 10"""
