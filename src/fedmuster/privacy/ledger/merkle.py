"""Merkle trees over the entries of a log, as in RFC 6962: roots, proofs, and checks of proofs.

An inclusion proof shows that a tree has an entry; a consistency proof shows that a tree only added
entries to an earlier one. Both are a few hashes, whatever the size of the log.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final

HASH_BYTES: Final = 32
_TILE_LEVELS: Final = 8
_TILE: Final = 1 << _TILE_LEVELS
"""Leaves whose hashes are read again when they are needed; what is above them stays in memory."""
_TILES_KEPT: Final = 64

Pyramid = list[list[bytes]]
"""The hashes of complete subtrees by level, the leaves first."""


def leaf_hash(entry: bytes) -> bytes:
    """The hash of a tree of one entry."""
    return sha256(b"\x00" + entry).digest()  # RFC 6962, 2.1


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a tree from those of its two subtrees."""
    return sha256(b"\x01" + left + right).digest()  # RFC 6962, 2.1


class MerkleTree:
    """A tree that grows, and proves what was in it at any earlier size.

    Of n leaves, n / 128 hashes stay in memory; leaves are read again where a proof needs them.

    Args:
        read: ``read(first, end)`` gives the leaf hashes of the entries from ``first`` to ``end``.

    Example:
        >>> leaves = [leaf_hash(b"%d" % number) for number in range(1000)]
        >>> tree = MerkleTree(lambda first, end: leaves[first:end])
        >>> tree.extend(leaves)
        >>> proof = tree.inclusion(7, 1000)
        >>> proves_inclusion(proof, leaves[7], 7, 1000, tree.root(1000))
        True
    """

    def __init__(self, read: Callable[[int, int], Sequence[bytes]]) -> None:
        self._tail: list[bytes] = []  # leaves behind the last full tile
        self._upper: Pyramid = [[]]  # of full tiles
        self._memo: dict[tuple[int, int], bytes] = {}  # roots of subtrees that are not complete
        self._paths: dict[tuple[int, int], list[bytes]] = {}  # from a full tile to the root
        self._read = read
        self._kept: dict[int, Pyramid] = {}  # full tiles, those that were needed last
        self._last_tile: Pyramid = [[]]

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return len(self._upper[0]) * _TILE + len(self._tail)

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaves, by their hashes."""
        self._memo.clear()
        self._paths.clear()
        self._tail.extend(leaves)
        full = len(self._tail) // _TILE * _TILE
        for first in range(0, full, _TILE):
            self._add_tile(_pyramid(self._tail[first : first + _TILE]))
        del self._tail[:full]
        self._last_tile = _pyramid(self._tail)

    def _add_tile(self, tile: Pyramid) -> None:
        self._keep(len(self._upper[0]), tile)
        self._upper[0] += tile[-1]
        level = 0
        while len(self._upper[level]) % 2 == 0:
            if level + 1 == len(self._upper):
                self._upper.append([])
            self._upper[level + 1].append(node_hash(*self._upper[level][-2:]))
            level += 1

    def root(self, size: int) -> bytes:
        """The hash of the tree of the first ``size`` leaves."""
        return self._root(0, size) if size > 0 else sha256(b"").digest()

    def inclusion(self, index: int, size: int) -> bytes:
        """The proof that leaf ``index`` is in the tree of ``size`` leaves (RFC 6962, 2.1.1)."""
        tile, end = index // _TILE, (index // _TILE + 1) * _TILE
        if end > size:  # in the last tile, which is not full
            return b"".join(self._path(index, 0, size))
        key = (tile, size)
        if key not in self._paths:
            self._paths[key] = self._path(tile * _TILE, 0, size, down_to=_TILE)
        inner = self._tile(tile)
        place = index % _TILE
        path = [inner[level][place >> level ^ 1] for level in range(_TILE_LEVELS)]
        return b"".join(path + self._paths[key])

    def consistency(self, old: int, size: int) -> bytes:
        """The proof that the tree of ``size`` leaves begins with that of ``old`` (2.1.2)."""
        if not 0 < old < size:
            return b""
        proof: list[bytes] = []
        first, end, whole = 0, size, True
        while end - first > old - first:
            split = first + _split(end - first)
            if old <= split:
                proof.append(self._root(split, end))
                end = split
            else:
                proof.append(self._root(first, split))
                first, whole = split, False
        if not whole:
            proof.append(self._root(first, end))
        return b"".join(reversed(proof))

    def _path(self, index: int, first: int, end: int, *, down_to: int = 1) -> list[bytes]:
        """The siblings on the way from ``[index, index + down_to)`` up to ``[first, end)``."""
        path = []
        while end - first > down_to:
            split = first + _split(end - first)
            if index < split:
                path.append(self._root(split, end))
                end = split
            else:
                path.append(self._root(first, split))
                first = split
        return path[::-1]

    def _root(self, first: int, end: int) -> bytes:
        width = end - first
        level = width.bit_length() - 1
        if width == 1 << level:
            return self._node(level, first >> level)
        if (first, end) not in self._memo:
            split = first + _split(width)
            self._memo[first, end] = node_hash(self._root(first, split), self._root(split, end))
        return self._memo[first, end]

    def _node(self, level: int, index: int) -> bytes:
        """The hash of a complete subtree with 2^level leaves."""
        if level >= _TILE_LEVELS:
            return self._upper[level - _TILE_LEVELS][index]
        per_tile = _TILE_LEVELS - level
        tile, place = index >> per_tile, index & ((1 << per_tile) - 1)
        return self._tile(tile)[level][place]

    def _tile(self, tile: int) -> Pyramid:
        if tile == len(self._upper[0]):
            return self._last_tile
        if tile not in self._kept:
            self._keep(tile, _pyramid(self._read(tile * _TILE, (tile + 1) * _TILE)))
        return self._kept[tile]

    def _keep(self, tile: int, pyramid: Pyramid) -> None:
        while len(self._kept) >= _TILES_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[tile] = pyramid


def _pyramid(leaves: Sequence[bytes]) -> Pyramid:
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([node_hash(*below[i : i + 2]) for i in range(0, len(below) - 1, 2)])
    return levels


def _split(width: int) -> int:
    """The largest power of two below ``width``."""
    return 1 << (width - 1).bit_length() - 1


def hashes_in(proof: bytes) -> list[bytes]:
    """The hashes that a proof joins."""
    return [proof[i : i + HASH_BYTES] for i in range(0, len(proof), HASH_BYTES)]


def proves_inclusion(proof: bytes, leaf: bytes, index: int, size: int, root: bytes) -> bool:
    """Whether the tree of ``size`` leaves with this root has the leaf at ``index``."""
    if not 0 <= index < size or len(proof) % HASH_BYTES:
        return False
    at, last, found = index, size - 1, leaf  # RFC 9162, 2.1.3.2
    for sibling in hashes_in(proof):
        if last == 0:
            return False
        if at & 1 or at == last:
            found = node_hash(sibling, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def proves_consistency(proof: bytes, old: int, old_root: bytes, size: int, root: bytes) -> bool:
    """Whether the tree of ``size`` leaves begins with the tree of ``old`` leaves."""
    if not 0 < old <= size or len(proof) % HASH_BYTES:
        return False
    if old == size:
        return not proof and old_root == root
    path = hashes_in(proof)
    if old & (old - 1) == 0:
        path.insert(0, old_root)
    if not path:
        return False
    at, last = old - 1, size - 1  # RFC 9162, 2.1.4.2
    while at & 1:
        at, last = at >> 1, last >> 1
    before = after = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            after = node_hash(after, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and before == old_root and after == root
