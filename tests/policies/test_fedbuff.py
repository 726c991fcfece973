"""FedBuff and FedAsync: fair draws that do not list all clients, and the published federation."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import BoolArray, Problem, RoundView
from fedmuster.core.staleness import ConstantWorth, PolynomialWorth
from fedmuster.core.streams import POLICY, stream
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation, Simulation
from fedmuster.federation.triggers import Buffer, Pace
from fedmuster.policies.fedbuff import FedAsync, FedBuff
from fedmuster.policies.random import Random
from fedmuster.worlds import BSFLGroups

LEVEL = 1e-3
MANY = 256


def view(available: BoolArray, count: int) -> RoundView:
    return RoundView(round=1, cohort_size=count, available=available)


def drawn(policy: Random, seen: RoundView, seed: int) -> tuple[int, ...]:
    state = policy.init(Problem(num_clients=len(seen.available), cohort_size=1))
    return tuple(policy.select(state, seen, stream(seed, POLICY, 1)).clients.tolist())


class TestDraws:
    @pytest.mark.parametrize("share", [1.0, 0.3])
    def test_every_available_client_is_equally_likely(self, share: float) -> None:
        available = np.random.default_rng(3).random(MANY) < share
        times = np.zeros(MANY)
        for seed in range(4_000):
            times[list(drawn(FedBuff(), view(available, 1), seed))] += 1
        assert times[~available].sum() == 0
        assert chisquare(times[available]).pvalue > LEVEL

    def test_every_pair_is_equally_likely(self) -> None:
        """The first that are different, not the first two."""
        available = np.zeros(MANY, dtype=np.bool_)
        available[: MANY // 4] = True
        seen = view(available, 2)
        pairs = Counter(
            tuple(client % 4 for client in drawn(FedBuff(), seen, seed)) for seed in range(6_000)
        )
        clients = range(MANY // 4)
        expected = Counter((a % 4, b % 4) for a, b in combinations(clients, 2))
        scale = 6_000 / expected.total()
        frequencies = [expected[pair] * scale for pair in expected]
        assert set(pairs) <= set(expected)
        assert chisquare([pairs[pair] for pair in expected], frequencies).pvalue > LEVEL

    def test_few_of_many_are_drawn_without_a_list_of_all(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        available = np.ones(MANY, dtype=np.bool_)
        available[7] = False

        def refuse(self: RoundView) -> Any:
            raise AssertionError

        monkeypatch.setattr(RoundView, "candidates", refuse)
        assert len(drawn(FedBuff(), view(available, 4), 0)) == 4
        for count, there in ((5, available), (4, np.arange(MANY) < MANY // 4 - 1)):
            with pytest.raises(AssertionError):
                drawn(FedBuff(), view(there, count), 0)

    @pytest.mark.parametrize("policy", [FedBuff(), FedAsync()])
    def test_all_else_is_random_selection(self, policy: Random) -> None:
        for seed in range(20):
            available = np.random.default_rng(seed).random(30) < 0.7
            for count in (1, 5, 40):
                seen = view(available, count)
                assert drawn(policy, seen, seed) == drawn(Random(), seen, seed)
        weighed = Problem(num_clients=MANY, cohort_size=1, num_samples=np.arange(MANY))
        seen = view(np.ones(MANY, dtype=np.bool_), 2)
        choices = [
            each.select(each.init(weighed), seen, stream(1, POLICY, 1)).clients.tolist()
            for each in (FedBuff(by_data=True), Random(by_data=True))
        ]
        assert choices[0] == choices[1]

    @pytest.mark.parametrize(("count", "num_clients"), [(2, 10), (2, MANY), (3, 2)])
    def test_inclusion_is_the_chance_of_each(self, count: int, num_clients: int) -> None:
        available = np.arange(num_clients) > 0
        policy = FedBuff()
        state = policy.init(Problem(num_clients=num_clients, cohort_size=1))
        chosen = policy.select(state, view(available, count), stream(0, POLICY, 1))
        assert chosen.inclusion is not None
        share = min(count, num_clients - 1) / (num_clients - 1)
        assert chosen.inclusion.tolist() == [share] * min(count, num_clients - 1)


SPEC = """
rounds = 5
seeds = [1]
{federation}
[world]
name = "bsfl-groups"
num_clients = 100
cohort_size = {cohort_size}

[[policy]]
name = "{policy}"
{own}
"""


def experiment(
    tmp_path: Path, policy: str, *, cohort_size: int = 20, federation: str = "", own: str = ""
) -> Experiment:
    path = tmp_path / "spec.toml"
    path.write_text(
        SPEC.format(policy=policy, cohort_size=cohort_size, federation=federation, own=own)
    )
    return Experiment.load(path, rehearse=True)


def settled(found: Experiment) -> Federation:
    """What the simulation of the only policy makes of the settings."""
    return found.simulation(Path("nowhere"), run="x").settings


class TestPublishedFederation:
    @pytest.mark.parametrize(("policy", "buffer"), [("fedbuff", 10), ("fedasync", 1)])
    def test_as_published(self, tmp_path: Path, policy: str, buffer: int) -> None:
        settings = settled(experiment(tmp_path, policy))
        assert settings == Federation(
            concurrency=20,
            refill=1,
            trigger=Buffer(answers=buffer),
            staleness=PolynomialWorth(power=0.5),
            rest_after=5,
        )

    def test_pisces_has_its_pace(self, tmp_path: Path) -> None:
        settings = settled(experiment(tmp_path, "pisces"))
        assert (settings.trigger, settings.refill) == (Pace(), 1)

    @pytest.mark.parametrize(
        ("cohort_size", "federation"), [(4, ""), (50, "[federation]\nconcurrency = 4")]
    )
    def test_a_small_federation_has_a_small_buffer(
        self, tmp_path: Path, cohort_size: int, federation: str
    ) -> None:
        found = experiment(tmp_path, "fedbuff", cohort_size=cohort_size, federation=federation)
        settings = settled(found)
        assert (settings.slots, settings.trigger) == (4, Buffer(answers=4))
        assert not settings.in_rounds

    def test_the_concurrency_of_the_policys_own_table_counts(self, tmp_path: Path) -> None:
        own = "federation = { concurrency = 6 }"
        settings = settled(experiment(tmp_path, "fedbuff", own=own))
        assert (settings.slots, settings.trigger) == (6, Buffer(answers=6))

    def test_what_a_user_writes_is_not_made_smaller(self, tmp_path: Path) -> None:
        own = "federation = { buffer = 10 }"
        with pytest.raises(ConfigError) as refused:
            experiment(tmp_path, "fedbuff", cohort_size=4, own=own)
        assert refused.value.key == ("federation", "buffer")

    def test_what_a_user_writes_replaces_what_was_published(self, tmp_path: Path) -> None:
        own = 'federation = { buffer = 3, staleness = "constant" }'
        settings = settled(experiment(tmp_path, "fedbuff", own=own))
        assert settings.trigger == Buffer(answers=3)
        assert settings.worth != PolynomialWorth()
        assert settled(experiment(tmp_path, "fedbuff", own='federation = "rounds"')).in_rounds

    @pytest.mark.parametrize("policy", ["fedbuff", "fedasync", "pisces"])
    def test_what_stands_in_the_common_table_counts_for_published_policies_too(
        self, tmp_path: Path, policy: str
    ) -> None:
        common = '[federation]\nconcurrency = 8\nbuffer = 3\nrefill = 2\nstaleness = "constant"'
        settings = settled(experiment(tmp_path, policy, federation=common))
        assert settings == Federation(
            concurrency=8,
            refill=2,
            trigger=Buffer(answers=3),
            staleness=ConstantWorth(),
            rest_after=5,
        )
        equal = "[federation]\nconcurrency = 8\nbuffer = 8\nrefill = 8"
        assert settled(experiment(tmp_path, policy, federation=equal)).in_rounds
        for wrong in ("buffer = 11", "refill = 9"):
            with pytest.raises(ConfigError) as refused:
                experiment(tmp_path, policy, federation=f"[federation]\nconcurrency = 5\n{wrong}")
            assert refused.value.key == ("federation", wrong.split()[0])

    def test_a_pace_with_another_bound(self, tmp_path: Path) -> None:
        common = '[federation]\ntrigger = { name = "pace", bound = 3 }'
        assert settled(experiment(tmp_path, "pisces", federation=common)).trigger == Pace(bound=3)

    def test_a_simulation_without_settings_has_rounds(self) -> None:
        world = BSFLGroups(num_clients=100, cohort_size=20)
        assert Simulation("fedbuff", world, seed=1).settings.in_rounds
        published = Simulation("fedbuff", world, seed=1, federation=Federation()).settings
        assert published.trigger == Buffer(answers=10)

    def test_a_world_without_a_cohort_size_is_left_to_the_simulation(self) -> None:
        class Own:
            name, hierarchical = "own", False

            def start(self, seed: int) -> Any:
                return BSFLGroups(num_clients=100, cohort_size=20).start(seed)

        world: Any = Own()
        found = Experiment(policies={"fedbuff": FedBuff()}, world=world, rounds=1)
        assert settled(replace(found, regret=False)).trigger == Buffer(answers=10)
