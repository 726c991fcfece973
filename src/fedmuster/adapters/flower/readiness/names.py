"""Which names of projects ``flwr run`` takes: the rule of Flower's own build."""

from typing import Final

LONGEST: Final = 32


def is_valid(name: str) -> bool:
    """Whether Flower packs an app of this name."""
    return (
        0 < len(name) <= LONGEST
        and name[0].isalpha()
        and all(letter.isalnum() or letter == "-" for letter in name)
    )


def mended(name: str) -> str:
    """The nearest name that will do."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")
    if not kept[:1].isalpha():
        kept = f"app-{kept}"
    return kept[:LONGEST].strip("-")
