"""Which policies play, how they work, and how a stranger's file enters."""

from pathlib import Path

import pytest

from claims.league.contestants import (
    LeagueContestant,
    all_contestants,
    base,
    contestants_of,
    every_name,
    left_out,
)
from claims.league.plan import Choice, cell_of
from claims.league.tiny import MINE, TINY
from fedmuster.core.errors import ConfigError, UnknownNameError
from fedmuster.core.policy import POLICIES
from fedmuster.training.aggregation import FedAvg, FedAvgM


@pytest.fixture
def stranger(tmp_path: Path) -> str:
    """The address of a policy that fedmuster has never seen."""
    file = tmp_path / "mine.py"
    file.write_text(MINE, encoding="utf-8")
    return f"{file}:Mine"


def labels(text: str) -> list[str]:
    return [one.label for one in contestants_of(text)]


def test_the_base_is_random_in_rounds() -> None:
    assert base().label == "random, rounds"
    assert base().in_rounds
    assert [one.label for one in all_contestants(["random"])] == [
        *("random, rounds", "random, round-less")
    ]


def test_a_name_stands_for_rounds_and_without() -> None:
    assert labels("oort") == ["oort, rounds", "oort, round-less"]
    assert labels("fedcs") == ["fedcs, rounds"]  # plans whole cohorts
    assert labels("oort:federation=round-less") == ["oort, round-less"]
    assert labels("bsfl:alpha=3,federation=rounds") == ["bsfl:alpha=3, rounds"]
    (own,) = contestants_of("oort:federation={buffer=5, refill=2}")
    assert (own.federation.buffer, own.federation.refill, own.mode) == (5, 2, "own")


def test_published_federations_stay_as_published() -> None:
    for name in ("fedbuff", "fedasync", "pisces"):
        assert labels(name) == [f"{name}, published"]
    (fedbuff,) = contestants_of("fedbuff")
    assert len(fedbuff.servers) > 1  # a server rate to be tuned
    assert contestants_of("oort")[0].servers == (FedAvg(),)
    (own,) = contestants_of('oort:federation=rounds,server={name="fedavgm", learning_rate=0.5}')
    assert own.servers == (FedAvgM(learning_rate=0.5),)


def test_a_strangers_file_plays(stranger: str) -> None:
    one, other = contestants_of(f"{stranger}:first=3")
    assert (one.label, other.label) == ("Mine:first=3, rounds", "Mine:first=3, round-less")
    assert one.policy.first == 3  # type: ignore[attr-defined]


def test_evaluations_are_about_ten_answers_apart() -> None:
    for one in all_contestants(every_name()):
        buffer = _buffer(one)
        if buffer is not None:
            assert 9 <= buffer * one.evaluate_every <= 10


def _buffer(one: LeagueContestant) -> int | None:
    cell = cell_of(one, TINY, TINY.judging, Choice(0.1, one.servers[0]), 0)
    world = TINY.judging.world.start(0)
    federation = cell.experiment.federation_of("contestant").settled(one.policy, world.problem)
    if federation.trigger is None:
        return federation.buffer
    return getattr(federation.trigger, "answers", None)


def test_every_policy_plays_or_says_why_not() -> None:
    playing = set(every_name())
    assert {"random", "oort", "bsfl", "fedbuff", "fedasync", "pisces"} <= playing
    for name in POLICIES.keys() - playing:
        assert left_out(POLICIES[name]()) is not None
        with pytest.raises(ConfigError) as caught:
            contestants_of(name)
        assert caught.value.key == ("name",)


@pytest.mark.parametrize(
    ("text", "kind", "key", "value"),
    [
        ("ort", UnknownNameError, ("name",), "ort"),
        ("genie", ConfigError, ("name",), "genie"),
        ("mine.py", ConfigError, ("name",), "mine.py:Class"),
        ("./mine.py:first=3", ConfigError, ("name",), "mine.py:Class"),
        ("nowhere.py:Mine", UnknownNameError, ("name",), "nowhere.py"),
        ("oort:federation=slots", ConfigError, ("federation",), "slots"),
        ("oort:federation=published", ConfigError, ("federation",), "oort"),
        ("oort:explore=0.1,federation=published", ConfigError, ("federation",), "federation"),
        ("fedcs:federation=round-less", ConfigError, ("federation",), "fedcs"),
        ("oort:federation={concurrency=20}", ConfigError, ("federation", "concurrency"), "20"),
        (
            "refl:federation={rounds=true, late_hold_slots=false}",
            ConfigError,
            ("federation", "late_hold_slots"),
            "false",
        ),
        ("oort:server=nobody", UnknownNameError, ("server", "name"), "nobody"),
    ],
)
def test_what_cannot_play_is_refused(
    text: str, kind: type[ConfigError], key: tuple[str, ...], value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        contestants_of(text)
    assert type(caught.value) is kind
    assert caught.value.key == key
    assert value in str(caught.value)


@pytest.mark.parametrize(
    ("federation", "in_rounds"),
    [
        ("rounds", True),
        ("round-less", False),
        ("{rounds=true}", True),
        ('{staleness={name="polynomial"}}', True),
        ("{refill=10, buffer=10}", True),
        ("{refill=1, buffer=10}", False),
    ],
)
def test_late_clients_hold_their_slots_in_rounds(federation: str, in_rounds: bool) -> None:
    (one,) = contestants_of(f"oort:federation={federation}")
    assert one.in_rounds == in_rounds
    assert one.federation.late_hold_slots == (True if in_rounds else None)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("bsfl:alpha=3, federation=rounds", "bsfl:alpha=3, rounds"),
        ("bsfl:federation=rounds, alpha=3", "bsfl:alpha=3, rounds"),
        ("bsfl: alpha=3 , federation = rounds", "bsfl:alpha=3, rounds"),
        ("oort: federation=rounds", "oort, rounds"),
    ],
)
def test_spaces_between_settings_make_no_other_label(text: str, label: str) -> None:
    assert labels(text) == [label]


def test_two_contestants_of_one_name_are_refused(stranger: str, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(MINE, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        all_contestants([stranger, f"{other}:Mine"])
    assert caught.value.key == ("name",)
    for file in (stranger.removesuffix(":Mine"), str(other)):
        assert file in str(caught.value)
    assert len(all_contestants([stranger, stranger])) == 3
