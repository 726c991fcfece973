"""What a strategy has learned since it was made: moments, momentum, clipping norms, spent privacy.

Flower's strategies keep it in plain attributes, and nothing of Flower saves them. Here every
attribute counts that differs from what it was in the fresh strategy, in wrapped strategies too. So
a saved run does not overrule settings: whoever continues it with another learning rate gets that.
"""

import functools
import logging
import types
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from flwr.serverapp.strategy import Strategy

from fedmuster.adapters.flower.record.plain_values import NotPlainError, Packed, pack, unpack
from fedmuster.core import state as states
from fedmuster.core.errors import StateError

# What the user's app brings along again, and so nobody needs to save.
_CODE = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.ModuleType,
    functools.partial,
    logging.Logger,
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

    Args:
        strategy: the user's.

    Example:
        >>> from flwr.serverapp.strategy import FedAvgM
        >>> strategy = FedAvgM(server_momentum=0.9)
        >>> memory = StrategyMemory(strategy)
        >>> strategy.momentum_vector = [np.array([0.5, -1.0])]
        >>> continued = FedAvgM(server_momentum=0.8)
        >>> StrategyMemory(continued).restore(memory.capture(), source="here")
        >>> continued.momentum_vector, continued.server_momentum
        ([array([ 0.5, -1. ])], 0.8)
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self._fresh = self._on_record = self._packed()
        self._restored: set[str] = set()

    def capture(self) -> bytes:
        """An image of all that has changed since the strategy was fresh.

        And of what was restored: a strategy that is started again and again is not fresh.
        """
        self._on_record = self._packed()
        changed = {
            path: packed
            for path, packed in self._on_record.items()
            if path in self._restored or self._fresh.get(path) != packed
        }
        blocks = {
            str(place): np.frombuffer(packed.block, dtype=np.uint8)
            for place, packed in enumerate(changed.values())
        }
        trees = {path: packed.tree for path, packed in changed.items()}
        return states.to_bytes(blocks, {"kinds": _kinds(self.strategy), "trees": trees})

    def restore(self, image: bytes, *, source: str) -> None:
        """Put what :meth:`capture` saved into the strategy. ``source`` names the file in errors."""
        blocks, meta = states.from_bytes(image, source=source)
        if meta["kinds"] != _kinds(self.strategy):
            raise StateError(
                f"{source} was saved by the strategy {' of '.join(meta['kinds'])}, this is "
                f"{' of '.join(_kinds(self.strategy))}: continue with that, or give Muster another "
                "folder"
            )
        for place, (path, tree) in enumerate(meta["trees"].items()):
            self._put(path, Packed(tree, blocks[str(place)].tobytes()), source=source)
            self._restored.add(path)
        self._on_record = self._packed()

    def go_back(self) -> None:
        """Undo what has changed since the last :meth:`capture`: that round did not count."""
        now = self._packed()
        for path, packed in self._on_record.items():
            if now.get(path) != packed:
                self._put(path, packed, source="the record")

    def _put(self, path: str, packed: Packed, *, source: str) -> None:
        owners = dict(_strategies(self.strategy))
        prefix, _, name = path.rpartition(".")
        if not _is_state_dict(packed.tree):
            setattr(owners[prefix], name, unpack(packed))
            return
        holder = getattr(owners[prefix], name, None)
        if not isinstance(holder, _Stateful):
            raise StateError(
                f"{source} holds what {path} of the strategy had counted, but now that is "
                f"{holder!r}: continue with it, or give Muster another folder"
            )
        holder.load_state_dict(unpack(Packed(packed.tree[1], packed.block)))

    def not_kept(self) -> list[str]:
        """The attributes that cannot be saved: after a restart they are as in a fresh strategy."""
        return [path for path, value in _attributes(self.strategy) if _try_pack(value) is None]

    def _packed(self) -> dict[str, Packed]:
        packed = {path: _try_pack(value) for path, value in _attributes(self.strategy)}
        return {path: value for path, value in packed.items() if value is not None}


def _strategies(strategy: Strategy, prefix: str = "") -> Iterator[tuple[str, Strategy]]:
    """The strategy and those that it wraps, with the dotted names under which it has them."""
    yield prefix, strategy
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            yield from _strategies(value, f"{prefix}.{name}".lstrip("."))


def _attributes(strategy: Strategy) -> Iterator[tuple[str, Any]]:
    for prefix, owner in _strategies(strategy):
        for name, value in vars(owner).items():
            if not isinstance(value, (*_CODE, Strategy)):
                yield f"{prefix}.{name}".lstrip("."), value


def _kinds(strategy: Strategy) -> list[str]:
    return [type(owner).__qualname__ for _, owner in _strategies(strategy)]


def _try_pack(value: Any) -> Packed | None:
    try:
        return pack(value)
    except NotPlainError:
        return _try_pack_state(value) if isinstance(value, _Stateful) else None


def _try_pack_state(holder: _Stateful) -> Packed | None:
    try:
        tree, block = pack(holder.state_dict())
    except NotPlainError:
        return None
    return Packed([_STATE_DICT, tree], block)


def _is_state_dict(tree: Any) -> bool:
    return isinstance(tree, list) and tree[0] == _STATE_DICT
