"""Policies with a share of exploration: who is chosen, how likely, and what is kept of the policy.

How often clients are chosen is tested in ``tests/contract/test_inclusion_probabilities.py``.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator
from scipy.stats import binom
from tests.policies.small_networks import rounds
from tests.policies.test_lifted import TRAITS

from fedmuster import (
    BSFL,
    POLICIES,
    Exploring,
    FedCS,
    Feedback,
    Lifted,
    Oort,
    Pisces,
    Problem,
    Random,
    RoundView,
    Selection,
    Selector,
    TiFL,
)
from fedmuster.core.config import from_text, named, to_table
from fedmuster.core.errors import ConfigError, PolicyError
from fedmuster.core.policy import Policy
from fedmuster.experiments.replay import play_again
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.policies.exploring import inclusion, upload_order
from fedmuster.report.explain import explain, find_run, from_replay, rule_that_can_be_told
from fedmuster.report.points import Point
from fedmuster.testing import Knowledge
from fedmuster.testing.playing import continue_in, same_selection
from fedmuster.testing.repetition_checks import trajectory
from fedmuster.testing.tiny_federation import lively

SOME: dict[str, Policy[Any]] = {
    name: kind() for name, kind in POLICIES.items() if kind().cohort_rule != "everyone"
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Firsts(Random):
    """The lowest ids."""

    name: ClassVar[str] = "firsts"

    quota: int | None = None
    prefers: bool = False

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        chosen = Selection.of(
            view, slice(None), np.flatnonzero(view.available)[: view.num_to_choose]
        )
        preferred = np.ones(len(chosen.clients), dtype=np.bool_) if self.prefers else None
        return replace(chosen, quota=self.quota, preferred=preferred)


def cohort_chances(wanted: set[int], available: set[int], explore: Fraction) -> dict[Any, Fraction]:
    """P of every cohort, by going through all that can happen."""
    size, chance = (
        len(wanted),
        dict.fromkeys(combinations(sorted(available), len(wanted)), Fraction(0)),
    )
    for drawn in range(size + 1):
        number = comb(size, drawn) * explore**drawn * (1 - explore) ** (size - drawn)
        for kept in combinations(sorted(wanted), size - drawn):
            free = sorted(available - set(kept))
            for new in combinations(free, drawn):
                here = number / comb(size, drawn) / comb(len(free), drawn)
                chance[tuple(sorted({*kept, *new}))] += here
    return chance


class TestInclusion:
    @pytest.mark.parametrize(
        ("size", "available"), [(1, 1), (1, 6), (2, 5), (3, 6), (4, 5), (5, 5)]
    )
    @pytest.mark.parametrize("explore", [Fraction(1, 20), Fraction(1, 2), Fraction(1)])
    def test_is_the_sum_over_all_cohorts(
        self, size: int, available: int, explore: Fraction
    ) -> None:
        chance = cohort_chances(set(range(size)), set(range(available)), explore)
        assert sum(chance.values()) == 1
        exact = [sum(p for who, p in chance.items() if k in who) for k in range(available)]
        found = inclusion(size, available, float(explore))
        assert found.wanted == pytest.approx(float(exact[0]), rel=1e-13)
        if available > size:
            assert found.other == pytest.approx(float(exact[-1]), rel=1e-13)
            assert size * found.wanted + (available - size) * found.other == pytest.approx(size)

    @pytest.mark.parametrize("explore", [1e-9, 0.05, 0.999])
    def test_of_large_cohorts(self, explore: float) -> None:
        size, available = 5_000, 1_000_000
        drawn = np.arange(size + 1)
        share = drawn / (available - size + drawn)
        found = inclusion(size, available, explore)
        expected = float(binom.pmf(drawn, size, explore) @ share)
        assert found.other == pytest.approx(expected, rel=1e-9)
        assert size * found.wanted + (available - size) * found.other == pytest.approx(size)

    def test_is_said_of_each_client(self) -> None:
        problem = Problem(num_clients=9, cohort_size=3)
        available = np.arange(9) != 1
        likely = inclusion(3, 8, 0.5)
        for seed in range(30):
            selector = Selector(Exploring(policy=Firsts(), explore=0.5), problem, seed=seed)
            cohort = selector.select(available=available)
            assert cohort.wanted is not None
            assert cohort.wanted.tolist() == [0, 2, 3]
            assert cohort.inclusion is not None
            assert cohort.inclusion.tolist() == [
                likely.wanted if k in (0, 2, 3) else likely.other for k in cohort.clients
            ]
            assert selector.scores()["wanted"].tolist() == [1, 0, 1, 1, 0, 0, 0, 0, 0]


class TestIsThePolicy:
    @pytest.mark.filterwarnings("ignore::fedmuster.core.errors.FedmusterWarning")
    @pytest.mark.parametrize("name", SOME)
    def test_itself_without_exploration(self, name: str) -> None:
        """Fifty rounds, bit for bit; all that selections say, too."""
        plain, wrapped = SOME[name], Exploring(policy=SOME[name], explore=0.0)
        assert trajectory(wrapped, Knowledge()) == trajectory(plain, Knowledge())
        federation = lively(Knowledge())
        ours, theirs = (Selector(p, federation.problem(), seed=4) for p in (wrapped, plain))
        for one, other in zip(
            continue_in(ours, federation, 5), continue_in(theirs, federation, 5), strict=True
        ):
            assert same_selection(one, other)
        assert wrapped.rule() == plain.rule() or type(wrapped.rule()) is type(plain.rule())

    def test_in_all_traits(self) -> None:
        for policy in SOME.values():
            exploring = Exploring(policy=policy)
            for trait in TRAITS:
                assert getattr(exploring, trait) == getattr(policy, trait)
            assert exploring.terms.items() >= policy.terms.items()
        assert Exploring(policy=TiFL()).wants_gain
        assert Exploring(policy=Pisces()).published_federation

    def test_that_wants_the_same_clients_as_without(self) -> None:
        """In the same state, with the same seed."""
        problem = Problem(num_clients=30, cohort_size=5)
        for seed in range(5):
            plain = Selector(BSFL(), problem, seed=seed).select()
            mixed = Selector("bsfl:explore=0.5", problem, seed=seed).select()
            assert mixed.wanted is not None
            assert mixed.wanted.tolist() == plain.clients.tolist()

    def test_that_learns_from_explored_clients(self) -> None:
        selector: Selector[Any] = Selector(
            "bsfl:explore=1.0", Problem(num_clients=6, cohort_size=2), seed=1
        )
        asked = np.zeros(6)
        for _ in range(10):
            cohort = selector.select()
            asked[cohort.clients] += 1
            answers = Feedback(
                round=cohort.round, clients=cohort.clients, latency_seconds=np.ones(2)
            )
            selector.observe(answers)
        selector.select()
        assert selector.scores()["times_asked"].tolist() == asked.tolist()


class TestWrittenDown:
    def test_as_text(self) -> None:
        assert from_text(POLICIES, "bsfl:alpha=3,explore=0.05") == Exploring(
            policy=BSFL(alpha=3.0), explore=0.05
        )
        long = 'exploring:policy={name="bsfl", alpha=3},explore=0.05'
        assert from_text(POLICIES, long) == from_text(POLICIES, "bsfl:alpha=3,explore=0.05")

    def test_as_a_table_and_back(self) -> None:
        for name, policy in SOME.items():
            if name == "exploring":
                continue
            table = {"name": name, "explore": 1}
            found: Any = named(POLICIES, table, key=(), what="policy")
            assert found == Exploring(policy=policy, explore=1.0)
            assert named(POLICIES, to_table(found), key=(), what="policy") == found
            assert repr(found) == repr(Exploring(policy=policy, explore=1.0))

    def test_in_another_policy(self) -> None:
        table = {"name": "lifted", "policy": {"name": "oort", "explore": 0.1}}
        found: Any = named(POLICIES, table, key=(), what="policy")
        assert found == Lifted(policy=Exploring(policy=Oort(), explore=0.1))

    def test_labels_say_it(self) -> None:
        spec = {
            "rounds": 2,
            "world": {"name": "bsfl-groups", "num_clients": 10, "cohort_size": 2},
            "policy": [
                {"name": "bsfl"},
                {"name": "bsfl", "explore": 0.05},
                {"name": "bsfl", "explore": 0.2, "label": "mine"},
            ],
        }
        experiment = Experiment.from_table(spec)
        assert list(experiment.policies) == ["bsfl", "bsfl, explore 0.05", "mine"]
        assert Experiment.from_table(experiment.to_table()) == experiment

    @pytest.mark.parametrize(
        ("table", "key"),
        [
            ({"name": "bsfl", "explore": 1.5}, "explore"),
            ({"name": "bsfl", "explore": -0.1}, "explore"),
            ({"name": "bsfl", "explore": "often"}, "explore"),
            ({"name": "bsfl", "explroe": 0.1}, "explroe"),
            ({"name": "bsfl", "explore": 0.1, "alpha": "x"}, "alpha"),
            ({"name": "all-clients", "explore": 0.1}, "explore"),
            ({"name": "safa", "explore": 0.1}, "explore"),
        ],
    )
    def test_wrongly(self, table: dict[str, Any], key: str) -> None:
        with pytest.raises(ConfigError) as caught:
            named(POLICIES, table, key=("policy", "3"), what="policy")
        assert caught.value.key == ("policy", "3", key)


class TestWholeCohorts:
    def test_explored_clients_upload_last(self) -> None:
        """The policy wants 7, 2, 9, 4, in this order; 2 and 9 lose their places to 1 and 8."""
        clients, order = np.array([2, 4, 7, 9]), np.array([2, 0, 3, 1])
        wanted = Selection(round=1, clients=clients, order=order)
        kept, new, found = np.array([1, 2]), np.array([8, 1]), set()
        for seed in range(20):
            turns = upload_order(wanted, kept, new, np.random.default_rng(seed))
            assert turns is not None
            found.add(tuple(np.array([1, 4, 7, 8])[turns].tolist()))
        assert found == {(7, 4, 1, 8), (7, 4, 8, 1)}

    def test_a_policy_with_an_order_keeps_one(self) -> None:
        federation = lively(Knowledge())
        mixed = Exploring(policy=FedCS(), explore=0.5)
        for cohort in continue_in(Selector(mixed, federation.problem()), federation, 20):
            assert cohort.order is not None  # and the Selector has checked it

    def test_a_quota_of_certain_clients_is_refused(self) -> None:
        policy = Exploring(policy=Firsts(quota=2, prefers=True), explore=0.5)
        with pytest.raises(PolicyError, match="firsts"):
            Selector(policy, Problem(num_clients=9, cohort_size=3)).select()

    def test_a_quota_of_any_answers_stays(self) -> None:
        policy = Exploring(policy=Firsts(quota=2), explore=0.5)
        assert Selector(policy, Problem(num_clients=9, cohort_size=3)).select().quota == 2

    def test_at_edges_it_is_lifted(self) -> None:
        """The Selector checks budgets and coverage; whom the policy wanted is told, too."""
        policy = Lifted(policy=Exploring(policy=BSFL(), explore=0.5))
        explored = 0
        for played in rounds(policy, "mixed", 20):
            selection = played.selection
            assert selection.inclusion is None
            if selection.wanted is not None:
                explored += len(np.setdiff1d(selection.clients, selection.wanted))
        assert explored > 0


class TestWithoutRounds:
    def test_among_idle_clients(self) -> None:
        selector = Selector(
            Exploring(policy=Firsts(), explore=0.5), Problem(num_clients=9, cohort_size=3), seed=2
        )
        first = selector.select(count=3)
        second = selector.select(count=2)
        assert not set(first.clients) & set(second.clients)
        likely = inclusion(2, 6, 0.5)
        assert second.inclusion is not None
        assert set(second.inclusion.tolist()) <= set(likely)
        again = Selector.from_bytes(
            selector.to_bytes(), Exploring(policy=Firsts(), explore=0.5), source="here"
        )
        assert same_selection(again.select(count=2), selector.select(count=2))


def test_explanations_say_who_was_explored(tmp_path: Path) -> None:
    experiment = Experiment.from_table(
        {
            "rounds": 6,
            "regret": False,
            "world": {"name": "bsfl-groups", "num_clients": 10, "cohort_size": 4},
            "policy": [{"name": "bsfl", "explore": 0.5}],
        }
    )
    prepare(tmp_path, experiment)
    execute(tmp_path)
    cell, found = find_run(tmp_path), set()
    for round_ in range(1, 7):
        moment = from_replay(cell, Point(round_), play_again(tmp_path, round_))
        wanted = moment.column("wanted") == 1
        assert np.count_nonzero(wanted) == 4
        assert "50 % of the places" in rule_that_can_be_told(moment).about(moment)
        for client in range(10):
            verdict = explain(moment, client=client).verdict
            assert verdict is not None
            chosen = moment.chose(client)
            found.add((chosen, bool(wanted[client])))
            assert ("explored" in verdict) == (chosen and not wanted[client])
            assert ("went to exploration" in verdict) == (wanted[client] and not chosen)
    assert found == {(True, True), (True, False), (False, True), (False, False)}
