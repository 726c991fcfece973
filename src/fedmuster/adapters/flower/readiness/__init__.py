"""Whether a Flower app is ready for fedmuster, and what to write where it is not.

Everything is read from the app's source, except that its two components are imported, each in a
process of its own; :func:`rehearse` plays a round.
"""

from collections.abc import Iterator
from pathlib import Path

from fedmuster.adapters.flower.readiness.client_rules import ClientRules
from fedmuster.adapters.flower.readiness.findings import Finding, Level, Readiness
from fedmuster.adapters.flower.readiness.gain_rules import check_gains
from fedmuster.adapters.flower.readiness.legacy import check_legacy
from fedmuster.adapters.flower.readiness.loading import Loaded
from fedmuster.adapters.flower.readiness.muster_rules import check_muster
from fedmuster.adapters.flower.readiness.probe import check_imports
from fedmuster.adapters.flower.readiness.project import Component, Project, check_project
from fedmuster.adapters.flower.readiness.rehearsal import rehearse
from fedmuster.adapters.flower.readiness.server import Server
from fedmuster.adapters.flower.readiness.source import Module, Source
from fedmuster.adapters.flower.readiness.strategies import Strategies
from fedmuster.adapters.flower.readiness.strategy_rules import check_strategies
from fedmuster.adapters.flower.readiness.values import Values
from fedmuster.adapters.flower.readiness.wrapping import check_wrapping

__all__ = ["Finding", "Level", "Readiness", "check", "rehearse"]


def check(folder: Path, *, import_seconds: float = 60.0) -> Readiness:
    """Look at the app in ``folder``.

    Args:
        folder: that holds the app's ``pyproject.toml``.
        import_seconds: that importing a component may take.

    Raises:
        ConfigError: there is no such folder, or its ``pyproject.toml`` is not TOML.
    """
    project = Project.load(folder)
    source = Source(project.folder)
    findings = list(check_project(project))
    server_modules = list(_modules(project, source, "serverapp"))
    client_modules = list(_modules(project, source, "clientapp"))
    if not project.complete:
        findings += check_legacy(source, source.every_file())
        return Readiness(findings=tuple(findings))
    loaded, imported = check_imports(project, seconds=import_seconds)
    every_module = list(dict.fromkeys((*server_modules, *client_modules)))
    older = list(check_legacy(source, every_module))
    findings += [*imported, *older]
    server = Server(project, Strategies(Values(source, project.run_config)), server_modules)
    if not older:  # all else is about the current API
        findings += check_wrapping(server) if server_modules else ()
        findings += check_muster(server)
        findings += check_strategies(server)
        client = ClientRules(server, client_modules, _of(loaded, "clientapp"))
        findings += [*client.findings(), *check_gains(server, client)]
    importable = all(finding.level == "ok" for finding in imported)
    return Readiness(findings=tuple(findings), nodes=server.nodes_needed, importable=importable)


def _modules(project: Project, source: Source, which: Component) -> Iterator[Module]:
    reference = project.component(which)
    if reference is not None:
        yield from source.reachable(reference.partition(":")[0])


def _of(loaded: dict[Component, Loaded], which: Component) -> Loaded | None:
    found = loaded.get(which)
    return found if found is not None and not found.problem else None
