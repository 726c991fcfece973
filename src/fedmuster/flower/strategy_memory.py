"""What a strategy has learned since it was made, and what it has made of the training config.

Flower's strategies keep moments, momentum, clipping norms and spent privacy in plain attributes,
and Flower saves none of them. Here every attribute counts that differs from the fresh strategy's,
in wrapped strategies too. So a saved run does not overrule settings: a user who continues it with
another learning rate gets that.
"""

import functools
import logging
import types
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

import numpy as np
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.flower.plain_files import NotPlainError, Packed, pack, unpack
from fedmuster.flower.strategy_loop import named_layers, warn

# Attributes that the user's app makes anew.
_CODE = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.ModuleType,
    functools.partial,
    logging.Logger,
    PurePath,
    type,
)
_STATE_DICT = "state_dict"


@runtime_checkable
class _Stateful(Protocol):
    """For example Flower's privacy accountants."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> object: ...


class StrategyMemory:
    """Saves and restores what a strategy, and any that it wraps, remembers.

    Make it of the fresh strategy: before :meth:`restore`, and before the first round.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self._not_kept: set[str] = set()
        self._told: set[str] = set()
        self._fresh = self._packed()
        self._captured = _digests(self._fresh)
        self._restored: set[str] = set()

    def capture(self) -> bytes:
        """An image of all that was restored or has changed since the strategy was fresh."""
        packed = self._packed()
        self._captured = _digests(packed)
        return self._image(
            {
                path: value
                for path, value in packed.items()
                if path in self._restored or self._fresh.get(path) != value
            }
        )

    def changes(self) -> bytes | None:
        """An image of what has changed since the last :meth:`capture`; None if nothing has."""
        changed = self._changed(self._packed())
        return self._image(changed) if changed else None

    def _changed(self, packed: dict[str, Packed]) -> dict[str, Packed]:
        digests = _digests(packed)
        return {path: packed[path] for path in packed if self._captured.get(path) != digests[path]}

    def _image(self, packed: dict[str, Packed]) -> bytes:
        blocks = {
            str(place): np.frombuffer(value.block, dtype=np.uint8)
            for place, value in enumerate(packed.values())
        }
        trees = {path: value.tree for path, value in packed.items()}
        return states.to_bytes(blocks, {"kinds": _kinds(self.strategy), "trees": trees})

    def restore(self, image: bytes, *, source: str, in_step: bool = False) -> None:
        """Put what :meth:`capture` saved into the strategy. ``source`` names the file in errors.

        A strategy that is ``in_step`` has it already, or what its user has set since.
        """
        saved = self._read(image, source)
        if not in_step:
            self._put_what_differs(saved, source)
        self._restored |= saved.keys()
        self._captured = _digests(self._packed())

    def go_back(self, images: Iterable[bytes], *, source: str) -> None:
        """Undo all changes but those of these images, the later ones on top."""
        counts = dict(self._fresh)
        for image in images:
            counts |= self._read(image, source)
        owners = dict(named_layers(self.strategy))
        for path in self._packed().keys() - counts.keys():
            prefix, _, name = path.rpartition(".")
            delattr(owners[prefix], name)  # made in the round that does not count
        self._put_what_differs(counts, source)

    def _put_what_differs(self, saved: dict[str, Packed], source: str) -> None:
        """Other attributes stay the same objects, to which others may hold references."""
        now = _digests(self._packed())
        for path, packed in saved.items():
            if now.get(path) != _digest(packed):
                self._put(path, packed, source)

    def _read(self, image: bytes, source: str) -> dict[str, Packed]:
        blocks, meta = states.from_bytes(image, source=source)
        then, now = meta["kinds"], _kinds(self.strategy)
        # Strategies that it holds may be made, or put away, as it trains.
        if any(now[name] != then[name] for name in then.keys() & now.keys()):
            raise StateError(
                f"{source} was saved by the strategy {' of '.join(then.values())}, this is "
                f"{' of '.join(now.values())}: continue with that, or give Muster another folder"
            )
        return {
            path: Packed(tree, blocks[str(place)].tobytes())
            for place, (path, tree) in enumerate(meta["trees"].items())
        }

    def _put(self, path: str, packed: Packed, source: str) -> None:
        prefix, _, name = path.rpartition(".")
        owner = dict(named_layers(self.strategy)).get(prefix)
        if owner is None:
            warn(f"{source} holds {path} of the strategy, which has no {prefix} now: left out")
            return
        holder: Any = getattr(owner, name, None)
        if not isinstance(packed.tree, list) or packed.tree[0] != _STATE_DICT:
            value = unpack(packed)
            if _is_tensor_like(holder, value):  # of which an optimiser may hold a reference
                holder.data.copy_(value)
            else:
                setattr(owner, name, value)
            return
        if not isinstance(holder, _Stateful):
            raise StateError(
                f"{source} holds what {path} of the strategy had counted, but now that is "
                f"{holder!r}: continue with it, or give Muster another folder"
            )
        holder.load_state_dict(unpack(Packed(packed.tree[1], packed.block)))

    def not_kept(self) -> list[str]:
        """Attributes that cannot be saved, each told once; some begin as None, which can."""
        news = sorted(self._not_kept - self._told)
        self._told |= self._not_kept
        return news

    def _packed(self) -> dict[str, Packed]:
        packed = {path: _try_pack(value) for path, value in _attributes(self.strategy)}
        self._not_kept |= {path for path, value in packed.items() if value is None}
        return {path: value for path, value in packed.items() if value is not None}


Digest = tuple[Any, int, int]
"""Stands for a packed value, which may be large, as long as the process lives."""


def _digest(packed: Packed) -> Digest:
    return packed.tree, len(packed.block), hash(packed.block)


def _digests(packed: dict[str, Packed]) -> dict[str, Digest]:
    return {path: _digest(value) for path, value in packed.items()}


def _attributes(strategy: Strategy) -> Iterator[tuple[str, Any]]:
    for prefix, owner in named_layers(strategy):
        for name, value in vars(owner).items():
            if not isinstance(value, (*_CODE, Strategy)):
                yield f"{prefix}.{name}".lstrip("."), value


def _kinds(strategy: Strategy) -> dict[str, str]:
    return {name: type(owner).__qualname__ for name, owner in named_layers(strategy)}


def _is_tensor_like(holder: Any, value: Any) -> bool:
    return (
        hasattr(holder, "copy_")
        and type(holder) is type(value)
        and (holder.shape, holder.dtype) == (value.shape, value.dtype)
    )


def _try_pack(value: Any) -> Packed | None:
    try:
        return pack(value)
    except NotPlainError:
        if not isinstance(value, _Stateful):
            return None
    try:
        tree, block = pack(value.state_dict())
    except NotPlainError:
        return None
    return Packed([_STATE_DICT, tree], block)


Values = dict[str, Any]


class ConfigMemory:
    """Saves the training config as it is after a round, and puts it back after a crash.

    Args:
        saved: what :meth:`capture` returned; None where nothing is on record.
    """

    def __init__(self, saved: tuple[Values, Values] | None = None) -> None:
        self._saved = saved
        self._given: Values = {}
        self._captured: Values | None = None if saved is None else saved[1]
        self.latest = ConfigRecord()
        """The config of the last round."""

    def go_on_with(
        self, config: ConfigRecord | None, *, again: bool = False
    ) -> ConfigRecord | None:
        """The user's config, with what the strategy had changed where the user gives the same.

        ``again`` where this process has played rounds: then it is as the strategy has left it. (A
        loop of starts with a new but equal config each gets, after a crash, one round with what the
        strategy had made of an earlier one.)
        """
        self._given = {} if config is None else deepcopy(dict(config))
        if self._saved is None:
            return config
        given_then, was = self._saved
        if again:
            for key, value in self._given.items():
                if value == was.get(key):
                    self._given[key] = given_then.get(key, value)
            return config
        # Into the user's own record, because a loop of starts gives the same one again.
        config = ConfigRecord() if config is None else config
        for key in {**given_then, **was}:
            changed = not _alike(given_then, was, key)
            if changed and _alike(given_then, self._given, key):
                if key in was:
                    config[key] = was[key]
                else:
                    del config[key]
        return config

    def capture(self) -> tuple[Values, Values]:
        """What the user gave, and what has become of it."""
        self._captured = dict(self.latest)
        return self._given, self._captured

    def go_back(self) -> None:
        """Undo the changes of a round that does not count."""
        counts = self._given if self._captured is None else self._captured
        for key in [key for key in self.latest if key not in counts]:
            del self.latest[key]
        for key, value in counts.items():
            self.latest[key] = value


def _alike(one: Values, other: Values, key: str) -> bool:
    return (key in one) == (key in other) and one.get(key) == other.get(key)
