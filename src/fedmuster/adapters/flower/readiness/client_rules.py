"""Whether the ClientApp reports, is known again, and keeps private what the server pays for."""

import ast
from collections.abc import Iterator
from typing import Final

from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.loading import Loaded
from fedmuster.adapters.flower.readiness.server import Server
from fedmuster.adapters.flower.readiness.source import Module
from fedmuster.adapters.flower.readiness.values import Expression, Scope

_REPORTING: Final = "ReportingMod"
_PRIVATE: Final = "PrivateMod"
_CLIPPING: Final = {
    "DifferentialPrivacyClientSideFixedClipping": "fixedclipping_mod",
    "DifferentialPrivacyClientSideAdaptiveClipping": "adaptiveclipping_mod",
}


class ClientRules:
    """What there is to say about an app's ClientApp."""

    def __init__(self, server: Server, modules: list[Module], loaded: Loaded | None) -> None:
        self.server = server
        self.source = server.strategies.source
        self.modules = modules
        self.made = self._made()
        mods = self._mods(loaded)
        self.mods = None if mods is None else [*mods, *self._mods_of_training()]

    def findings(self) -> Iterator[Finding]:
        """All of it."""
        if self.made is None:
            return
        if self.mods is None:
            text = "which mods the ClientApp has is not known from reading: --rehearse tells"
            yield Finding(level="note", about="mods", text=text, where=self.made.where)
        else:
            yield from self._reporting(self.mods)
            yield from self._private(self.mods)
            yield from self._clipping(self.mods)
        yield from self._weights()

    def _reporting(self, mods: list[str]) -> Iterator[Finding]:
        assert self.made is not None
        if _REPORTING in mods:
            yield Finding(
                level="ok", about="mods", text="clients report their time", where=self.made.where
            )
            yield Finding(
                level="note",
                about="identity",
                text="a client is known again by its key, if the SuperLink runs with "
                "--enable-supernode-auth and Muster has authenticated=True, else by the client-id "
                "of its node config, else by its partition-id; with none of these it is a new "
                "client each time it starts",
                write="flower-supernode … --node-config 'client-id=\"hospital-7\"'",
            )
            if next(mod for mod in mods if mod != _PRIVATE) != _REPORTING:
                yield Finding(
                    level="note",
                    about="mods",
                    text="a mod before ReportingMod that refuses messages without a model, as "
                    "Flower's clipping mods do, keeps it from saying who the client is",
                    where=self.made.where,
                    write=f"mods=[{_REPORTING}(), …]",
                )
            return
        yield Finding(
            level="note",
            about="mods",
            text="the ClientApp has no ReportingMod: only the server's clock times clients, which "
            "cannot tell a slow client from a slow start of its process, and a client that starts "
            "again is a new one unless its key is registered. Add the import at the top of "
            f"{self.made.scope.module.where}, and change line {self.made.node.lineno}",
            where=self.made.where,
            write=self._import_and_line([_REPORTING]),
        )

    def _private(self, mods: list[str]) -> Iterator[Finding]:
        assert self.made is not None
        promised = self.privacy_promised
        if promised and _PRIVATE not in mods:
            yield Finding(
                level="must change",
                about="privacy",
                text="Muster has privacy=…, and the ClientApp has no PrivateMod: what clients send "
                "would not be private, and is refused",
                where=self.made.where,
                write=self._import_and_line(
                    [_PRIVATE, *([] if _REPORTING in mods else [_REPORTING])]
                ),
            )
        elif _PRIVATE in mods and promised is False:
            yield Finding(
                level="must change",
                about="privacy",
                text="the ClientApp has a PrivateMod, which sends nothing that no ledger was "
                "debited for, and Muster has no privacy=…",
                where=self.server.musters[0].call.where,
                write="from fedmuster.privacy.budget import Privacy\n"
                'Muster(…, privacy=Privacy(epsilon=10.0, noise="secure"))',
            )
        elif promised:
            if mods[0] != _PRIVATE:
                yield Finding(
                    level="must change",
                    about="privacy",
                    text="PrivateMod must stand first, so that it is the last to touch what leaves",
                    where=self.made.where,
                    write=f"mods=[{_PRIVATE}(), …]",
                )
            else:
                text = "updates leave clients only after the ledger's debit, clipped and noisy"
                yield Finding(level="ok", about="privacy", text=text)
            yield from self._private_evaluation()

    def _private_evaluation(self) -> Iterator[Finding]:
        fractions = [
            self.server.strategies.setting(built, "fraction_evaluate")
            for built in self.server.current
        ]
        for value, where in fractions:
            if value.known and value.value not in (None, 0):
                yield Finding(
                    level="note",
                    about="privacy",
                    text="clients also evaluate, which no budget pays for: PrivateMod refuses it "
                    "unless it is told otherwise. Evaluate on the server (evaluate_fn of start)",
                    where=where,
                    write="fraction_evaluate=0.0",
                )

    @property
    def privacy_promised(self) -> bool | None:
        """Whether Muster has privacy; None where there is no Muster yet."""
        if not self.server.musters:
            return None
        given = (self.server.muster_setting(each, "privacy") for each in self.server.musters)
        return any(value.value is not None for value in given)

    def _clipping(self, mods: list[str]) -> Iterator[Finding]:
        assert self.made is not None
        for built in self.server.built:
            needed = _CLIPPING.get(built.root.rpartition(".")[2])
            if needed is not None and needed not in mods:
                yield Finding(
                    level="must change",
                    about="mods",
                    text=f"{built.name} needs {needed} in the ClientApp",
                    where=self.made.where,
                    write=f"from flwr.clientapp.mod import {needed}\nmods=[…, {needed}]",
                )

    def _weights(self) -> Iterator[Finding]:
        key = self.server.weight_key
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Constant) and node.value == key:
                    yield Finding(
                        level="ok",
                        about="metrics",
                        text=f"replies seem to carry {key!r}",
                        where=module.at(node),
                    )
                    return
        yield Finding(
            level="note",
            about="metrics",
            text=f"{key!r} is not written in the ClientApp: the strategy weighs replies by this "
            "metric and refuses those without; --rehearse tells",
            where=self.modules[0].where if self.modules else "",
            write=f'MetricRecord({{"{key}": len(data), …}})',
        )

    def _made(self) -> Expression | None:
        """Where the ClientApp is made."""
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Call):
                    name = self.source.meaning(module, node.func) or ""
                    if name.startswith("flwr.") and name.endswith(".ClientApp"):
                        return Expression(node, Scope(module))
        return None

    def _mods(self, loaded: Loaded | None) -> list[str] | None:
        """The last names of its mods: as imported, else as written; None where not known."""
        if loaded is not None and loaded.mods is not None:
            return loaded.mods
        if self.made is None or not isinstance(self.made.node, ast.Call):
            return None
        given = {k.arg: k.value for k in self.made.node.keywords}.get("mods")
        if given is None or (isinstance(given, ast.Constant) and given.value is None):
            return []
        if not isinstance(given, ast.List):
            return None
        return self._names(self.made.scope.module, given)

    def _mods_of_training(self) -> list[str]:
        """Of ``@app.train(mods=[…])``: they stand behind the app's own."""
        names = []
        for module in self.modules:
            for function in ast.walk(module.tree):
                if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                for call in function.decorator_list:
                    if (
                        isinstance(call, ast.Call)
                        and isinstance(call.func, ast.Attribute)
                        and call.func.attr == "train"
                    ):
                        given = {k.arg: k.value for k in call.keywords}.get("mods")
                        names += self._names(module, given)
        return names

    def _names(self, module: Module, given: ast.expr | None) -> list[str]:
        if not isinstance(given, ast.List):
            return []
        called = (each.func if isinstance(each, ast.Call) else each for each in given.elts)
        names = (self.source.meaning(module, each) or "?" for each in called)
        return [name.rpartition(".")[2] for name in names]

    def with_mods(self, new: list[str], *, instead_of: str = "") -> str:
        """The app's own line, with these mods before those that it has, or instead of one."""
        assert self.made is not None
        assert isinstance(self.made.node, ast.Call)
        call = self.made.node
        arguments = [ast.unparse(argument) for argument in call.args]
        old: list[str] = []
        for keyword in call.keywords:
            if keyword.arg != "mods":
                arguments.append(f"{keyword.arg}={ast.unparse(keyword.value)}")
            elif isinstance(keyword.value, ast.List):
                old = [ast.unparse(element) for element in keyword.value.elts]
            elif not isinstance(keyword.value, ast.Constant):
                old = [f"*({ast.unparse(keyword.value)} or [])"]
        at = old.index(instead_of) if instead_of in old else 0
        mods = ", ".join([*old[:at], *new, *(mod for mod in old[at:] if mod != instead_of)])
        arguments.append(f"mods=[{mods}]")
        return f"{self.target} = {ast.unparse(call.func)}({', '.join(arguments)})"

    def _import_and_line(self, new: list[str]) -> str:
        return f"from fedmuster.adapters.flower import {', '.join(new)}\n" + self.with_mods(
            [f"{name}()" for name in new]
        )

    @property
    def target(self) -> str:
        """What the ClientApp is called."""
        assert self.made is not None
        for statement in ast.walk(self.made.scope.module.tree):
            if isinstance(statement, ast.Assign) and statement.value is self.made.node:
                return ast.unparse(statement.targets[0])
        return "app"
