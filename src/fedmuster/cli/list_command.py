"""``fedmuster list`` and ``fedmuster show``: what a spec can name, as the registries say it."""

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import click

from fedmuster.core.registry import Registry, import_object


class _Kind(NamedTuple):
    """What one of a kind is called, its registry, its table in a spec, and its command line."""

    singular: str
    registry: str
    table: str
    option: str


_KINDS: Final = {
    "policies": _Kind(
        "policy", "core.policy:POLICIES", "[[policy]]", "{name}{settings} random --world {world}"
    ),
    "worlds": _Kind("world", "worlds.world:WORLDS", "[world]", "random --world {name}{settings}"),
    "solvers": _Kind(
        "solver",
        "solvers.bottleneck_problem:SOLVERS",
        '[[policy]]\nname = "bsfl"\n[policy.solver]',
        "'bsfl:solver={table}' random --world {world}",
    ),
    "availabilities": _Kind(
        "availability",
        "worlds.availability:AVAILABILITIES",
        '[world]\nname = "bsfl-groups"\n[world.availability]',
        "random --world 'bsfl-groups:availability={table}'",
    ),
    "assignment-solvers": _Kind(
        "assignment solver",
        "solvers.assignment:ASSIGNMENT_SOLVERS",
        '[[policy]]\nname = "cocs"\n[policy.solver]',
        "'cocs:solver={table}' random --world edge-network",
    ),
    "servers": _Kind(
        "server rule",
        "training.aggregation:SERVERS",
        "[training.server]",
        "--training 'server={table}'",
    ),
    "models": _Kind(
        "model", "training.models:MODELS", "[training.model]", "--training 'model={table}'"
    ),
    "datasets": _Kind(
        "data set", "training.data:DATASETS", "[training.data]", "--training 'data={table}'"
    ),
    "partitions": _Kind(
        "partition",
        "training.partition:PARTITIONS",
        "[training.partition]",
        "--training 'partition={table}'",
    ),
    "triggers": _Kind(
        "trigger",
        "federation.triggers:TRIGGERS",
        "[federation.trigger]",
        "--federation 'concurrency=20,trigger={table}'",
    ),
    "staleness": _Kind(
        "staleness rule",
        "core.staleness:STALENESS",
        "[federation.staleness]",
        "--federation 'concurrency=20,buffer=5,staleness={table}'",
    ),
    "schedules": _Kind(
        "privacy schedule",
        "privacy.schedules:SCHEDULES",
        "[privacy.schedule]",
        "--privacy 'schedule={table}'",
    ),
    "mechanisms": _Kind(
        "privacy mechanism",
        "privacy.mechanisms:MECHANISMS",
        "[privacy.mechanism]",
        "--privacy 'mechanism={table}'",
    ),
    "rate-schedules": _Kind(
        "learning-rate schedule",
        "training.local_sgd:RATE_SCHEDULES",
        "[training.local.schedule]",
        "--training 'local={{schedule={table}}}'",
    ),
}
_SECTION: Final = re.compile(r"^([A-Z]\w+):$", flags=re.MULTILINE)
_SHOWN: Final = 2
"""Settings in the example of a command line."""


@click.command("list")
@click.argument("kind", required=False, metavar="[KIND]", type=click.Choice(list(_KINDS)))
def list_command(kind: str | None) -> None:
    """List the names that a spec or command line can use; of one KIND, with a line on each."""
    from fedmuster.cli.display import say

    if kind is not None:
        show_kind(kind)
        return
    for plural, classes in registries().items():
        say(_wrapped(f"{plural} ({len(classes)}): {', '.join(classes)}", hanging="  "))
        for name, reason in classes.broken.items():
            say(_wrapped(f"{name} cannot be used: {reason}", "  ", "    "))
    say("\nfedmuster list policies    a line on each policy; so for every other kind")
    say("fedmuster show bsfl        all about one: rule, settings, paper, how to write it")


def show_kind(kind: str) -> None:
    """Print a table of the classes of one kind."""
    from fedmuster.cli.display import show_table

    rows = [(name, _summary(of), _paper(of)) for name, of in registries()[kind].items()]
    columns = 3 if any(paper for *_, paper in rows) else 2
    header = ("name", "what it is", "paper")[:columns]
    show_table(kind.capitalize(), header, [row[:columns] for row in rows], words=True)


@click.command()
@click.argument("name")
def show(name: str) -> None:
    """Show all about a policy, world, …: its rule, settings, paper, and how to write it.

    NAME is one of those that `fedmuster list` prints, or module:Class, or file.py:Class.
    """
    from fedmuster.cli.display import say
    from fedmuster.core.errors import UnknownNameError
    from fedmuster.core.registry import did_you_mean, is_outside, outside_class

    kinds = registries()
    if is_outside(name):
        kind = outside_class(name)
        for plural, registry in kinds.items():
            if registry.methods and all(hasattr(kind, method) for method in registry.methods):
                _show_class(plural, name, kind)
                return
        raise UnknownNameError(f"{name} is none of these: {', '.join(_KINDS)}")
    found = {plural: classes[name] for plural, classes in kinds.items() if name in classes}
    if not found:
        known = [one for classes in kinds.values() for one in classes]
        raise UnknownNameError(
            f"nothing is called {name!r}{did_you_mean(name, known)}; `fedmuster list` prints all "
            "names"
        )
    for number, (plural, kind) in enumerate(found.items()):
        if number > 0:
            say("")
        _show_class(plural, name, kind)


def registries() -> dict[str, Registry[Any]]:
    """The registry of every kind."""
    return {plural: import_object(f"fedmuster.{kind.registry}") for plural, kind in _KINDS.items()}


class _SettingLine(NamedTuple):
    name: str
    expected: str
    default: str | None
    """As TOML writes it; None where there is none, or where it is None."""
    required: bool
    meaning: str


def _show_class(plural: str, name: str, kind: type[Any]) -> None:
    from fedmuster.cli.display import say

    shape = _KINDS[plural]
    sections = _sections(kind)
    article = "an" if shape.singular[0] in "aeiou" else "a"
    say(f"{name}: {article} {shape.singular} ({kind.__module__}.{kind.__qualname__})\n")
    say(_text(sections[""]))
    settings = list(_settings(kind))
    if settings:
        say("\nSettings")
    for setting in settings:
        default = "required" if setting.required else f"default {setting.default or 'none'}"
        say(_wrapped(f"{setting.name}: {setting.expected}; {default}", "  ", "      "))
        if setting.meaning:
            say(_wrapped(setting.meaning, "    "))
    for name_of_setting, wrapper in registries()[plural].wrappers.items():
        if all(setting.name != name_of_setting for setting in settings):
            say(f"\nAlso {name_of_setting}: see `fedmuster show {wrapper.name}`")
    for title in ("Deviations", "References"):
        if title in sections:
            say(f"\n{title}\n{_text(sections[title], '  ')}")
    given = [s for s in settings if s.default is not None and s.default[0] not in "{["][:_SHOWN]
    option = shape.option.format(
        name=name,
        settings="".join(f"{',' if n else ':'}{s.name}={s.default}" for n, s in enumerate(given)),
        table=f'{{ name = "{name}"' + "".join(f", {s.name} = {s.default}" for s in given) + " }",
        world="edge-network" if getattr(kind, "assigns_edges", False) else "bsfl-rates",
    )
    if option.startswith("--"):
        option = f"bsfl random --world pause-groups {option}"
    say(f"\nOn the command line\n  fedmuster compare {option}")
    say("\nIn a spec (TOML)")
    say(textwrap.indent(f'{shape.table}\nname = "{name}"', "  "))
    for setting in settings:
        unset = "…" if setting.required else "…  # or leave it out"
        say(f"  {setting.name} = {setting.default or unset}")


def _settings(kind: type[Any]) -> Iterator[_SettingLine]:
    from dataclasses import MISSING, fields, is_dataclass
    from typing import get_type_hints

    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        entries = re.split(r"^(\w+): ", _sections(base).get("Args", ""), flags=re.MULTILINE)[1:]
        meanings |= zip(entries[::2], entries[1::2], strict=True)
    hints = get_type_hints(kind)
    for item in fields(kind) if is_dataclass(kind) else ():
        default = item.default
        if item.default_factory is not MISSING:
            default = item.default_factory()
        given = default is not MISSING and default is not None
        yield _SettingLine(
            name=item.name,
            expected=_expected(hints[item.name]),
            default=_toml(default) if given else None,
            required=default is MISSING,
            meaning=" ".join(meanings.get(item.name, "").replace("``", "`").split()),
        )


def _toml(value: Any) -> str:
    """A value as TOML writes it in one line."""
    from dataclasses import is_dataclass

    from fedmuster.core.config import to_table

    if is_dataclass(value) and not isinstance(value, type):
        value = to_table(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(of)}" for key, of in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _expected(hint: Any) -> str:
    """What a type hint asks for, for people."""
    from types import NoneType, UnionType
    from typing import Literal, Union, get_args, get_origin

    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_expected(option) for option in options if option is not NoneType)
    if origin is Literal:
        return " or ".join(map(_toml, options))
    if origin is tuple:
        return f"a list of {_expected(options[0])}"
    if (registry := Registry.of(hint)) is not None:
        return f"a {registry.kind}"
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return plain.get(hint) or str(getattr(hint, "name", hint.__name__))


def _sections(kind: type[Any]) -> dict[str, str]:
    """The docstring by its sections; under "" what stands before them."""
    texts = _SECTION.split(inspect.cleandoc(kind.__doc__ or "?"))
    bodies = (inspect.cleandoc("\n" + body.strip("\n")) for body in texts[2::2])
    return {"": texts[0].strip(), **dict(zip(texts[1::2], bodies, strict=True))}


def _text(text: str, indent: str = "") -> str:
    """Paragraphs and numbered points, wrapped; what is indented is code and stays."""
    told = []
    for block in re.split(r"\n(?=\n|\d+\. )", text.replace("``", "`")):
        if block.startswith(("\n ", " ")):
            told.append(textwrap.indent(block, indent))
        else:
            blank = "\n" if block.startswith("\n") else ""
            told.append(blank + _wrapped(" ".join(block.split()), indent))
    return "\n".join(told)


def _wrapped(text: str, indent: str = "", hanging: str | None = None) -> str:
    from fedmuster.cli.display import console

    return textwrap.fill(
        text,
        console.width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(kind: type[Any]) -> str:
    """The first line of the docstring."""
    return _sections(kind)[""].splitlines()[0].rstrip(".").replace("``", "")


def _paper(kind: type[Any]) -> str:
    """First author and year of the first reference in the docstring, or the title without authors.

    Example:
        >>> from fedmuster.policies import BSFL, FedSUV
        >>> _paper(BSFL), _paper(FedSUV)
        ('D. Ben Ami et al., 2025', 'FedSUV')
    """
    text = " ".join(_sections(kind).get("References", "").split())
    if not re.match(r"[A-Z]\. ", text):  # no initial: it begins with the title
        return re.split(r"[:,.]", text)[0]
    author = re.split(r",| et al| and ", text)[0]
    year = re.search(r"\b(?:19|20)\d\d\b", text)
    return f"{author} et al." + (f", {year[0]}" if year else "")
