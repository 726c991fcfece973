"""Whether a policy that learns from accuracy gains is told any."""

import ast
from collections.abc import Iterator

from fedmuster import policies
from fedmuster.adapters.flower.readiness.client_rules import ClientRules
from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.muster_rules import policy_of
from fedmuster.adapters.flower.readiness.server import Server
from fedmuster.adapters.flower.readiness.source import Module
from fedmuster.adapters.flower.readiness.strategies import Built, is_adapters
from fedmuster.adapters.flower.readiness.values import Expression, Function
from fedmuster.core.errors import ConfigError

_MOST_STEPS = 10


def check_gains(server: Server, client: ClientRules) -> Iterator[Finding]:
    """A run goes on without, by losses alone; a private one never tells of gains."""
    if client.made is None or client.privacy_promised or _is_marked(client.modules):
        return
    for muster in server.musters:
        name = _wanting(server, muster)
        if name is None:
            continue
        module, function = _evaluation(client)
        yield Finding(
            level="note",
            about="gains",
            text=f"{name} learns from how much accuracy training gains, and no evaluation is "
            "marked for measuring it: clients warn of that in every round, and the policy makes do "
            "with losses"
            + ("" if function else ". The app has no evaluation yet: write one")
            + f". In {module.where}",
            where=module.at(function) if function else client.made.where,
            write=_lines(client, function),
        )
        return


def _wanting(server: Server, muster: Built) -> str | None:
    """The policy's name, if it wants gains."""
    try:
        policy = policy_of(server, muster)
    except ConfigError:
        return None
    if policy is not None:
        return policy.name if policy.wants_gain else None
    given = server.strategies.settings(muster).get("policy")
    return None if given is None else _wanting_class(server, given, _MOST_STEPS)


def _wanting_class(server: Server, given: Expression, steps: int) -> str | None:
    """Of a policy that is made in the app: ``TiFL()``, ``Lifted(policy=TiFL())``, or a name."""
    node, scope = given
    if steps == 0:
        return None
    if not isinstance(node, ast.Call):
        options = server.strategies.values.sources(given)
    else:
        dotted = server.strategies.source.meaning(scope.module, node.func) or ""
        kind = getattr(policies, dotted.rpartition(".")[2], None)
        if dotted.startswith("fedmuster.") and getattr(kind, "wants_gain", None) is True:
            return str(getattr(kind, "name", dotted.rpartition(".")[2]))
        inner = server.strategies.values.keywords(node, scope).get("policy")
        options = [] if inner is None else [inner]
    found = (_wanting_class(server, option, steps - 1) for option in options)
    return next((name for name in found if name is not None), None)


def _is_marked(modules: list[Module]) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "evaluates"
        for module in modules
        for node in ast.walk(module.tree)
    )


def _evaluation(client: ClientRules) -> tuple[Module, Function | None]:
    """The app's function for evaluate messages, and its file."""
    for module in client.modules:
        for node in ast.walk(module.tree):
            if isinstance(node, Function) and _decorator(node) is not None:
                return module, node
    assert client.made is not None
    return client.made.scope.module, None


def _decorator(function: Function) -> ast.expr | None:
    """``@app.evaluate()``."""
    for each in function.decorator_list:
        called = each.func if isinstance(each, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "evaluate":
            return each
    return None


def _lines(client: ClientRules, function: Function | None) -> str:
    decorator = None if function is None else _decorator(function)
    shown = f"{client.target}.evaluate()" if decorator is None else ast.unparse(decorator)
    arguments = "message, context" if function is None else ast.unparse(function.args)
    name = "evaluate" if function is None else function.name
    reporter, above = _reporter(client)
    return f"{above}@{shown}\n@{reporter}.evaluates\ndef {name}({arguments}): …"


def _reporter(client: ClientRules) -> tuple[str, str]:
    """What the ReportingMod is called, and the lines that give it a name, where it has none."""
    for module in client.modules:
        made = [
            node
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call)
            and is_adapters(client.source.meaning(module, node.func), "ReportingMod")
        ]
        named = {node: name for name, node in module.local.items()}
        for node in made:
            if node in named:
                return named[node], ""
            mod = ast.unparse(node)
            line = client.with_mods(["reporting"], instead_of=mod)
            return "reporting", f"reporting = {mod}\n{line}\n\n"
    line = client.with_mods(["reporting"])
    imported = "from fedmuster.adapters.flower import ReportingMod\n"
    return "reporting", f"{imported}reporting = ReportingMod()\n{line}\n\n"
