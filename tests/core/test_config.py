import tomllib
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest
import tomli_w

from fedmuster.core.config import from_table, named, require, to_table
from fedmuster.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Small:
    name: ClassVar[str] = "small"


@dataclass(frozen=True, kw_only=True)
class Large:
    name: ClassVar[str] = "large"
    steps: int = 10


@dataclass(frozen=True, kw_only=True)
class Thing:
    name: ClassVar[str] = "thing"
    size: int
    weight: float = 1.0
    flag: bool = False
    mode: Literal["a", "b"] = "a"
    limit: float | None = None
    pair: tuple[float, float] = (0.0, 1.0)
    many: tuple[int, ...] = ()
    part: Small | Large = Small()

    def __post_init__(self) -> None:
        require(self.size >= 1, self, "size", "an integer >= 1")


def test_round_trip_through_toml() -> None:
    thing = Thing(size=2, weight=0.25, limit=3.0, many=(1, 2), part=Large(steps=7))
    table = tomllib.loads(tomli_w.dumps(to_table(thing)))
    assert named({"thing": Thing}, table, key=(), what="thing") == thing


def test_whole_numbers_are_numbers() -> None:
    weight = from_table(Thing, {"size": 1, "weight": 2}).weight
    assert (weight, type(weight)) == (2.0, float)


def test_a_bare_name_is_a_table() -> None:
    assert from_table(Thing, {"size": 1, "part": "large"}).part == Large()


@pytest.mark.parametrize(
    ("table", "key", "message"),
    [
        ({"size": 1, "wieght": 2}, ("wieght",), "did you mean 'weight'"),
        ({"size": "1"}, ("size",), "size = '1', expected a whole number"),
        ({"size": True}, ("size",), "size = True, expected a whole number"),
        ({"size": 1.0}, ("size",), "expected a whole number"),
        ({"size": 1, "weight": "heavy"}, ("weight",), "expected a number"),
        ({"size": 1, "flag": 1}, ("flag",), "expected true or false"),
        ({"size": 1, "mode": "c"}, ("mode",), "expected one of 'a', 'b'"),
        ({"size": 1, "pair": [1.0]}, ("pair",), "a list of 2"),
        ({"size": 1, "pair": 3}, ("pair",), "expected a list"),
        ({"size": 1, "limit": "x"}, ("limit",), "expected a number"),
        ({"size": 1, "part": {"name": "huge"}}, ("part", "name"), "small, large"),
        ({"size": 1, "part": {"name": "large", "step": 1}}, ("part", "step"), "'steps'"),
        ({"size": 1, "part": {"steps": 1}}, ("part",), "has no name"),
        ({"size": 1, "part": 3}, ("part",), "expected a table with a name"),
        ({"size": 0}, ("size",), "Thing: size = 0, expected an integer >= 1"),
        ({}, (), "missing key 'size'"),
    ],
)
def test_what_does_not_fit_is_named(
    table: dict[str, Any], key: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_table(Thing, table, key=("top",))
    assert caught.value.key == ("top", *key)
