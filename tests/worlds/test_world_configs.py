"""Configs of worlds: there and back through TOML, and what they refuse."""

import dataclasses
import tomllib
from typing import Any

import pytest
import tomli_w

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.worlds import (
    WORLDS,
    Bernoulli,
    BSFLGroups,
    BSFLRates,
    ContextualWorld,
    Exponential,
    ExponentialSizes,
    Fixed,
    LatencyWorld,
    LogNormal,
    Markov,
    Normal,
    PauseGroups,
    TraceWorld,
    World,
)

CONFIGS: list[World] = [
    BSFLGroups(),
    BSFLGroups(
        num_clients=7, cohort_size=2, num_groups=3, relative_sd=0.5, data=ExponentialSizes()
    ),
    BSFLRates(),
    BSFLRates(rest="fast", dropout=0.1, deadline_seconds=0.9, availability=Bernoulli()),
    PauseGroups(),
    PauseGroups(num_clients=300, cohort_size=15, num_clusters=20, cluster_delay_seconds=0.01),
    LatencyWorld(),
    LatencyWorld(distribution=Normal(relative_sd=0.3), spacing="even"),
    LatencyWorld(distribution=Fixed(), spacing="zipf", exponent=1.6),
    LatencyWorld(distribution=LogNormal(), availability=Markov(up=0.1, down=0.2)),
    TraceWorld(path="trace.csv"),
    TraceWorld(path="trace.parquet", mode="bootstrap", cohort_size=3),
    ContextualWorld(),
    ContextualWorld(free_cpu_ratio=(0.5, 0.5), compute_seconds=(1.0, 2.0), deadline_seconds=4.0),
]

NAN = float("nan")

REFUSED: list[tuple[type[Any], dict[str, Any], str]] = [
    (BSFLGroups, {"num_clients": 0}, "num_clients = 0, expected an integer >= 1"),
    (BSFLGroups, {"num_clients": -5}, "num_clients"),
    (BSFLGroups, {"num_clients": 2.5}, "num_clients"),
    (BSFLGroups, {"cohort_size": 0}, "cohort_size = 0, expected an integer >= 1"),
    (BSFLGroups, {"num_groups": 0}, "num_groups"),
    (BSFLGroups, {"relative_sd": 0.0}, "relative_sd"),
    (BSFLGroups, {"relative_sd": NAN}, "relative_sd"),
    (BSFLGroups, {"tau_min_seconds": 0.0}, "tau_min_seconds"),
    (BSFLGroups, {"fastest_seconds": -0.1}, "fastest_seconds"),
    (BSFLGroups, {"slowest_seconds": 0.05}, "slowest_seconds"),
    (BSFLGroups, {"slowest_seconds": float("inf")}, "slowest_seconds"),
    (BSFLGroups, {"dropout": -0.1}, "dropout"),
    (BSFLGroups, {"dropout": 1.1}, "dropout"),
    (BSFLGroups, {"dropout": NAN}, "dropout"),
    (BSFLGroups, {"deadline_seconds": 0.0}, "deadline_seconds"),
    (BSFLGroups, {"deadline_seconds": NAN}, "deadline_seconds"),
    (BSFLGroups, {"dropout": 0.1}, "write deadline_seconds = …"),
    (BSFLRates, {"num_clients": 0}, "num_clients"),
    (BSFLRates, {"fast_share": 1.1}, "fast_share"),
    (BSFLRates, {"fast_share": 0.5, "slow_share": 0.6}, "slow_share"),
    (BSFLRates, {"slow_share": NAN}, "slow_share"),
    (BSFLRates, {"rest": "medium"}, "rest"),
    (PauseGroups, {"num_clients": 0}, "num_clients"),
    (PauseGroups, {"num_clusters": 0}, "num_clusters"),
    (PauseGroups, {"cluster_delay_seconds": -0.05}, "cluster_delay_seconds"),
    (LatencyWorld, {"num_clients": 0}, "num_clients"),
    (LatencyWorld, {"tau_min_seconds": 0.2}, "fastest_seconds = 0.1, expected a number > tau_min"),
    (LatencyWorld, {"fastest_seconds": 20.0}, "slowest_seconds"),
    (LatencyWorld, {"tau_min_seconds": NAN}, "tau_min_seconds"),
    (LatencyWorld, {"spacing": "odd"}, "spacing"),
    (LatencyWorld, {"exponent": 0.0}, "exponent"),
    (LatencyWorld, {"exponent": float("inf")}, "exponent"),
    (Normal, {"relative_sd": -0.1}, "relative_sd"),
    (LogNormal, {"relative_sd": 0.0}, "relative_sd"),
    (TraceWorld, {"path": "a.csv", "mode": "loop"}, "mode"),
    (TraceWorld, {"path": "a.csv", "cohort_size": 0}, "cohort_size"),
    (ContextualWorld, {"num_clients": 0}, "num_clients"),
    (ContextualWorld, {"free_cpu_ratio": (0.5, 1.5)}, "two numbers > 0 and <= 1"),
    (ContextualWorld, {"free_cpu_ratio": (0.0, 1.0)}, "free_cpu_ratio"),
    (ContextualWorld, {"compute_seconds": (2.0, 1.0)}, "compute_seconds"),
    (ContextualWorld, {"bandwidth_mbit_per_second": (1.0, NAN)}, "bandwidth"),
    (ContextualWorld, {"noise_sd_seconds": 0.0}, "noise_sd_seconds"),
    (ContextualWorld, {"upload_mbit": -1.0}, "upload_mbit"),
    (ExponentialSizes, {"mean_samples": 0.0}, "mean_samples"),
    (ExponentialSizes, {"decay": -1.0}, "decay"),
    (ExponentialSizes, {"lowest_quality": 1.5}, "lowest_quality"),
]


@pytest.mark.parametrize("world", CONFIGS, ids=repr)
def test_configs_survive_toml(world: World) -> None:
    text = tomli_w.dumps(to_table(world))
    assert named(WORLDS, tomllib.loads(text), key=(), what="world") == world


def test_toml_as_one_would_write_it() -> None:
    text = """
    name = "bsfl-groups"
    num_clients = 500
    cohort_size = 25
    availability = { name = "markov", up = 0.1, down = 0.1 }
    data = "exponential-sizes"
    """
    assert named(WORLDS, tomllib.loads(text), key=(), what="world") == BSFLGroups(
        availability=Markov(up=0.1, down=0.1), data=ExponentialSizes()
    )
    text = """
    name = "latency"
    distribution = "exponential"
    deadline_seconds = 3
    dropout = 0.05
    """
    assert named(WORLDS, tomllib.loads(text), key=(), what="world") == LatencyWorld(
        distribution=Exponential(), deadline_seconds=3.0, dropout=0.05
    )


@pytest.mark.parametrize(("kind", "fields", "message"), REFUSED)
def test_refusals(kind: type[Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**fields)


def test_a_trace_world_asks_for_its_path() -> None:
    with pytest.raises(ConfigError, match="missing key 'path'"):
        named(WORLDS, {"name": "trace"}, key=("world",), what="world")


def test_the_registry_names_every_world_with_a_summary() -> None:
    for name, kind in WORLDS.items():
        assert kind.name == name
        assert dataclasses.is_dataclass(kind)
        summary = (kind.__doc__ or "").splitlines()[0]
        assert summary.endswith(".")
        assert len(summary) > 20
