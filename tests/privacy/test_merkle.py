"""Merkle trees against the definitions of RFC 6962, written down word by word."""

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.privacy.ledger.merkle import (
    MerkleTree,
    hashes_in,
    leaf_hash,
    proves_consistency,
    proves_inclusion,
)

# RFC 6962, 2.1: the definitions, recursive and over the entries themselves.


def power_below(n: int) -> int:
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def mth(entries: list[bytes]) -> bytes:
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = power_below(len(entries))
    return sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def path(m: int, entries: list[bytes]) -> list[bytes]:
    if len(entries) == 1:
        return []
    k = power_below(len(entries))
    if m < k:
        return [*path(m, entries[:k]), mth(entries[k:])]
    return [*path(m - k, entries[k:]), mth(entries[:k])]


def subproof(m: int, entries: list[bytes], whole: bool) -> list[bytes]:
    if m == len(entries):
        return [] if whole else [mth(entries)]
    k = power_below(len(entries))
    if m <= k:
        return [*subproof(m, entries[:k], whole), mth(entries[k:])]
    return [*subproof(m - k, entries[k:], False), mth(entries[:k])]


def entries_of(n: int) -> list[bytes]:
    return [str(number).encode() for number in range(n)]


def tree_of(entries: list[bytes], *, cuts: list[int] | None = None) -> MerkleTree:
    """A tree that grew in several steps."""
    leaves = [leaf_hash(entry) for entry in entries]
    tree = MerkleTree(lambda first, end: leaves[first:end])
    places = [0, *sorted(cut % (len(entries) + 1) for cut in cuts or []), len(entries)]
    for first, end in pairwise(places):
        tree.extend(leaves[first:end])
    return tree


SIZES = st.one_of(st.integers(1, 40), st.integers(240, 1100))


@given(n=SIZES, cuts=st.lists(st.integers(0, 1100), max_size=5), data=st.data())
def test_roots_and_proofs_are_those_of_the_definitions(
    n: int, cuts: list[int], data: st.DataObject
) -> None:
    entries = entries_of(n)
    tree = tree_of(entries, cuts=cuts)
    size = data.draw(st.integers(1, n))
    index, old = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    now, then = mth(entries[:size]), mth(entries[:old])
    assert tree.size == n
    assert tree.root(size) == now
    proof = tree.inclusion(index, size)
    assert hashes_in(proof) == path(index, entries[:size])
    assert proves_inclusion(proof, leaf_hash(entries[index]), index, size, now)
    link = tree.consistency(old, size)
    assert hashes_in(link) == subproof(old, entries[:size], True)
    assert proves_consistency(link, old, then, size, now)


@given(n=SIZES, data=st.data())
def test_a_proof_of_something_else_proves_nothing(n: int, data: st.DataObject) -> None:
    entries = entries_of(n)
    tree, root = tree_of(entries), mth(entries)
    index, other = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    proof, leaf = tree.inclusion(index, n), leaf_hash(entries[index])
    if other != index:
        assert not proves_inclusion(proof, leaf, other, n, root)
        assert not proves_inclusion(proof, leaf_hash(entries[other]), index, n, root)
    assert not proves_inclusion(proof, leaf, index, n, sha256(root).digest())
    assert not proves_inclusion(proof + root, leaf, index, n, root)
    assert not proves_inclusion(proof[:-1], leaf, index, n, root) or not proof
    assert not proves_inclusion(proof, leaf, n, n, root)
    assert not proves_inclusion(proof, leaf, -1, n, root)
    old = data.draw(st.integers(1, n))
    forged = [*entries[:old]]
    forged[data.draw(st.integers(0, old - 1))] = b"forged"
    link = tree.consistency(old, n)
    assert not proves_consistency(link, old, mth(forged), n, root)
    assert not proves_consistency(link + root, old, mth(entries[:old]), n, root)
    assert not proves_consistency(link, 0, mth([]), n, root)
    assert not proves_consistency(link, n + 1, root, n, root)


@given(data=st.data(), n=st.integers(2, 300), hashes=st.lists(st.binary(min_size=32, max_size=32)))
def test_invented_proofs_prove_nothing(data: st.DataObject, n: int, hashes: list[bytes]) -> None:
    root, index = mth(entries_of(n)), data.draw(st.integers(0, n - 1))
    assert not proves_inclusion(b"".join(hashes), leaf_hash(b"forged"), index, n, root)
    old = data.draw(st.integers(1, n - 1))
    assert not proves_consistency(b"".join(hashes), old, leaf_hash(b"forged"), n, root)


def test_known_roots() -> None:
    """The test vectors of the certificate-transparency reference code."""
    entries = [
        bytes.fromhex(text)
        for text in (
            "",
            "00",
            "10",
            "2021",
            "3031",
            "40414243",
            "5051525354555657",
            "606162636465666768696a6b6c6d6e6f",
        )
    ]
    tree = tree_of(entries)
    assert tree.root(0).hex().startswith("e3b0c44298fc1c14")
    assert tree.root(1).hex().startswith("6e340b9cffb37a98")
    assert tree.root(8).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@pytest.mark.parametrize("size", [255, 256, 257, 511, 512, 513, 65_536, 65_793])
def test_every_edge_of_a_tile(size: int) -> None:
    tree = tree_of(entries_of(size))
    root = tree.root(size)
    for index in {0, 254, 255, 256, 511, 512, size - 2, size - 1} & set(range(size)):
        leaf = leaf_hash(str(index).encode())
        assert proves_inclusion(tree.inclusion(index, size), leaf, index, size, root)
    for old in {1, 255, 256, 257, 512, size - 1} & set(range(1, size)):
        assert proves_consistency(tree.consistency(old, size), old, tree.root(old), size, root)
