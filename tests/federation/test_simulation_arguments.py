"""What a simulation takes for a policy and a world, and what it says once of a fallback."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmuster import BSFL, AllClients, LinUCB, Problem, Random, Selector
from fedmuster.core.errors import ConfigError, DataError, FedmusterWarning
from fedmuster.core.records import Feedback
from fedmuster.federation import Simulation
from fedmuster.worlds import BSFLRates, ContextualWorld, TraceWorld


def test_names_are_objects() -> None:
    by_name: Simulation[Any] = Simulation("bsfl:alpha=3.0", "bsfl-rates:num_clients=30", seed=2)
    by_object = Simulation(BSFL(alpha=3.0), BSFLRates(num_clients=30), seed=2)
    for _ in range(20):
        assert by_name.step().clients.tolist() == by_object.step().clients.tolist()


@pytest.mark.parametrize(
    ("policy", "world", "key", "value"),
    [
        (BSFL, BSFLRates(), "policy", "BSFL()"),
        (BSFL(), BSFLRates, "world", "BSFLRates()"),
        (BSFL(), None, "world", "NoneType"),
        (BSFLRates(), BSFLRates(), "policy", "BSFLRates"),
    ],
)
def test_classes_and_other_things_are_refused(
    policy: Any, world: Any, key: str, value: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Simulation(policy, world, seed=1)
    assert refused.value.key == (key,)
    assert value in str(refused.value)


def test_paths_are_stored_as_text() -> None:
    path: Any = Path("some") / "trace.csv"
    assert TraceWorld(path=path) == TraceWorld(path="some/trace.csv")
    wrong: Any = 3
    with pytest.raises(ConfigError) as refused:
        TraceWorld(path=wrong)
    assert refused.value.key == ("path",)


def test_a_cohort_of_everybody_is_said_once() -> None:
    simulation = Simulation(Random(), BSFLRates(num_clients=4), seed=1)
    with pytest.warns(FedmusterWarning) as said:
        simulation.step()
    assert len(said) == 1
    assert "5" in str(said[0].message)
    simulation.step()  # warnings are errors in these tests
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Simulation(AllClients(), BSFLRates(num_clients=4), seed=1).step()


def test_a_selector_says_it_too() -> None:
    selector = Selector(Random(), Problem(num_clients=2, cohort_size=3))
    with pytest.warns(FedmusterWarning):
        cohort = selector.select()
    seconds = np.array([1.0, 2.0])
    selector.observe(Feedback(round=1, clients=cohort.clients, latency_seconds=seconds))
    assert len(selector.select().clients) == 2
    Selector(Random(), Problem(num_clients=2, cohort_size=3)).select(cohort_size=2)


def test_linucb_without_features_says_so_once() -> None:
    simulation = Simulation(LinUCB(), BSFLRates(), seed=1)
    with pytest.warns(FedmusterWarning) as said:
        simulation.step()
    assert len(said) == 1
    simulation.step()
    Simulation(LinUCB(), ContextualWorld(), seed=1).step()


@pytest.mark.parametrize("seed", [1.5, -1, True, "1"])
def test_refuses_a_seed_that_is_no_natural_number(seed: Any) -> None:
    with pytest.raises(DataError):
        Simulation(Random(), BSFLRates(), seed=seed)
