"""Registries: every kind of thing that a spec, the command line or Python can name.

A class registers itself where it is defined::

    @POLICIES.register
    @dataclass(frozen=True, kw_only=True, slots=True)
    class EpsGreedy(PolicyTraits):
        name: ClassVar[str] = "eps-greedy"

A name is one of these:

- the ``name`` of a class that fedmuster defines;
- the name of an entry point of an installed package; its ``pyproject.toml`` has a table
  ``[project.entry-points."fedmuster.policies"]`` with ``eps-greedy = "my_package:EpsGreedy"``;
- ``module:Class``, where the module can be imported, also from the working directory;
- ``path/to/file.py:Class``.
"""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_origin

from fedmuster.core.errors import ConfigError, UnknownNameError

T = TypeVar("T")
C = TypeVar("C")

_OWN = "fedmuster."


class Registry(Mapping[str, type[T]]):
    """The classes of one kind, by name. Built-in classes and entry points are found on first use.

    Args:
        kind: what one of them is called in messages, for example "policy".
        protocol: the type hint of a config field that holds one; None where no field does.
        modules: modules of fedmuster that define such classes; packages with all their modules.
        methods: what an object of this kind must have, for classes from outside.
        group: the group of entry points with which other packages add classes.
    """

    _by_protocol: ClassVar[dict[Any, "Registry[Any]"]] = {}

    def __init__(
        self,
        kind: str,
        protocol: Any = None,
        *,
        modules: Iterable[str],
        methods: tuple[str, ...] = (),
        advice: str = "",
        group: str,
    ) -> None:
        self.kind, self.advice = kind, advice
        self.group = group
        self.methods = methods
        self.broken: dict[str, str] = {}
        """Entry points that cannot be loaded, and why."""
        self._modules = tuple(modules)
        self._classes: dict[str, type[Any]] = {}
        self._wrappers: dict[str, type[Any]] = {}
        self._plugins: dict[str, EntryPoint] | None = None
        if protocol is not None:
            self._by_protocol[protocol] = self

    @classmethod
    def of(cls, hint: Any) -> "Registry[Any] | None":
        """The registry of the things that a field with this type hint holds, if there is one."""
        return cls._by_protocol.get(get_origin(hint) or hint)

    def register(self, kind: type[C]) -> type[C]:
        """Decorator: make a class known by its ``name``. It comes above ``@dataclass``."""
        name = vars(kind).get("name") or getattr(kind, "name", None)
        if not isinstance(name, str):
            raise ConfigError(f"{kind.__qualname__} has no name: write name: ClassVar[str] = '…'")
        known = self._classes.get(name)
        if known is not None and _address(known) != _address(kind):
            raise ConfigError(
                f"two classes are registered as {self.kind} {name!r}: {_address(known)} and "
                f"{_address(kind)}; give one of them another name"
            )
        self._classes[name] = kind
        return kind

    def wrapper(self, setting: str) -> Callable[[type[C]], type[C]]:
        """Decorator: this class wraps another of its kind wherever a table has this setting.

        The class has two fields: one called as :attr:`kind`, and ``setting``. So
        ``{ name = "bsfl", explore = 0.05 }`` is ``Exploring(policy=BSFL(), explore=0.05)``, unless
        the named class has a setting of that name itself.
        """

        def register(kind: type[C]) -> type[C]:
            self._wrappers[setting] = kind
            return kind

        return register

    @property
    def wrappers(self) -> Mapping[str, type[T]]:
        """The classes that wrap another one, by the setting that says so."""
        self._find_all()
        return self._wrappers

    def __getitem__(self, name: str) -> type[T]:
        self._find_all()
        if name in self._classes:
            return self._classes[name]
        if name in self._found_plugins:
            return self._load(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        self._find_all()
        for name in self._found_plugins:
            if name not in self._classes and name not in self.broken:
                try:
                    self._load(name)
                except ConfigError as error:
                    self.broken[name] = str(error)
        return iter(sorted({*self._classes, *self._found_plugins} - set(self.broken)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def require(self, kind: Any, name: str) -> None:
        """Refuse a class from outside that cannot be of this kind."""
        missing = [method for method in self.methods if not callable(getattr(kind, method, None))]
        if not inspect.isclass(kind) or missing:
            lacks = f"it has no {', '.join(missing)}{self.advice}" if missing else "it is no class"
            raise ConfigError(f"{name} is no {self.kind}: {lacks}")
        if not is_dataclass(kind):
            raise ConfigError(
                f"{name} is no dataclass, so that its settings cannot be written down; decorate it "
                "with @dataclass(frozen=True, kw_only=True, slots=True)"
            )

    def fits(self, value: object) -> bool:
        """Whether an object has what this kind needs."""
        return not isinstance(value, type | str) and all(
            callable(getattr(value, method, None)) for method in self.methods
        )

    @property
    def _found_plugins(self) -> dict[str, EntryPoint]:
        if self._plugins is None:
            self._plugins = {entry.name: entry for entry in entry_points(group=self.group)}
        return self._plugins

    def _find_all(self) -> None:
        for module in self._modules:
            _import_all(module)

    def _load(self, name: str) -> type[T]:
        entry = self._found_plugins[name]
        try:
            kind = entry.load()
        except Exception as error:
            raise UnknownNameError(
                f"{self.kind} {name!r} is the entry point {entry.value!r}, which cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
        self.require(kind, entry.value)
        _SPELLINGS[kind] = name
        self._classes[name] = kind
        return self._classes[name]


_SPELLINGS: dict[type, str] = {}
"""How a class from outside was named where it was found."""


def is_outside(name: str) -> bool:
    """Whether a name is ``module:Class`` or ``file.py:Class``."""
    return ":" in name


def outside_class(name: str) -> type[Any]:
    """The class that ``module:Class`` or ``file.py:Class`` names."""
    kind = import_object(name)
    if not inspect.isclass(kind):
        raise ConfigError(f"{name} is {type(kind).__name__}, expected a class")
    module, _, attribute = name.partition(":")
    if module.endswith(".py"):
        name = f"{Path(module).resolve()}:{attribute}"
    if not kind.__module__.startswith(_OWN):  # a built-in class keeps its short name
        _SPELLINGS.setdefault(kind, name)
    return kind


def named_outside(kind: type[Any]) -> bool:
    """Whether a spec named this class by its address or by an entry point."""
    return kind in _SPELLINGS


def spelling(kind: type[Any]) -> str:
    """The name under which another process finds this class."""
    if kind in _SPELLINGS:
        return _SPELLINGS[kind]
    name: str = kind.__dict__.get("name") or kind.name
    if kind.__module__.startswith(_OWN) or "<locals>" in kind.__qualname__:
        return name
    if kind.__module__ != "__main__":
        return _address(kind)
    file = getattr(sys.modules["__main__"], "__file__", None)
    return name if file is None else f"{Path(file).resolve()}:{kind.__qualname__}"


def import_object(name: str) -> Any:
    """What ``module:attribute`` or ``file.py:attribute`` names, also in the working directory."""
    module, _, path = name.partition(":")
    try:
        found: Any = _from_file(str(Path(module).resolve())) if module.endswith(".py") else None
        if found is None:
            with _working_directory_importable():
                found = importlib.import_module(module)
    except Exception as error:
        advice = "install it, or put its folder on PYTHONPATH"
        if module.endswith(".py"):
            advice = "is this the right path, seen from the working directory?"
        raise UnknownNameError(
            f"{name} cannot be imported ({type(error).__name__}: {error}); {advice}"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise UnknownNameError(
                f"{name} is not there: {module} has no {path}"
                + did_you_mean(path, [key for key in vars(found) if not key.startswith("_")])
            )
        found = getattr(found, part)
    return found


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A hint for a misspelled name; empty where nothing is near."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _address(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


@cache
def _import_all(module: str) -> None:
    package = importlib.import_module(module)
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{module}."):
        importlib.import_module(found.name)


@cache
def _from_file(path: str) -> Any:
    """A module of its own for each file, whatever other modules are called."""
    digest = hashlib.sha256(path.encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"{Path(path).stem}_{digest}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    # An installed command, unlike python -m, does not look where the user stands.
    here = str(Path.cwd())
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)
