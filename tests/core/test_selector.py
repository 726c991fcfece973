import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster import BSFL, RBCSF, Feedback, Policy, Problem, Random, Selector
from fedmuster.core import state as states
from fedmuster.core.errors import (
    CallOrderError,
    ConfigError,
    DataError,
    FeedbackError,
    PolicyError,
    StateError,
)
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import RoundView, Selection, Truth
from fedmuster.core.state import to_arrays


def play(selector: Selector[Any], rounds: int = 1, **view: Any) -> list[list[int]]:
    cohorts = []
    for _ in range(rounds):
        cohort = selector.select(**view)
        latency = 0.1 + (cohort.clients % 7) / 10
        selector.observe(
            Feedback(round=cohort.round, clients=cohort.clients, latency_seconds=latency)
        )
        cohorts.append(cohort.clients.tolist())
    return cohorts


def bsfl(num_clients: int = 12, cohort_size: int = 3, **more: Any) -> Selector[Any]:
    return Selector(BSFL(), Problem(num_clients=num_clients, cohort_size=cohort_size, **more))


def state_of(selector: Selector[Any]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in to_arrays(selector.state).items()}


class TestOrderOfCalls:
    def test_select_twice(self) -> None:
        selector = bsfl()
        selector.select()
        with pytest.raises(CallOrderError, match="1"):
            selector.select()

    def test_observe_first(self) -> None:
        with pytest.raises(CallOrderError, match=r"call select\(\) first"):
            bsfl().observe(Feedback(round=1, clients=np.array([0]), latency_seconds=np.ones(1)))

    def test_a_late_answer_changes_nothing_and_leaves_the_round_open(self) -> None:
        selector = bsfl()
        play(selector, 2)
        cohort, before = selector.select(), state_of(selector)
        late = Feedback(round=2, clients=cohort.clients, latency_seconds=np.ones(3))
        with pytest.raises(FeedbackError, match="round 2, but round 3 is open"):
            selector.observe(late)
        assert state_of(selector) == before
        assert selector.pending is cohort

    def test_a_round_nobody_answered_is_closed_by_empty_feedback(self) -> None:
        selector = bsfl()
        cohort = selector.select()
        nobody = Feedback(round=1, clients=np.array([], int), latency_seconds=np.array([]))
        assert selector.observe(nobody).not_completed.tolist() == cohort.clients.tolist()
        assert selector.round == 2


class TestWhatASelectorAccepts:
    @pytest.mark.parametrize(
        ("view", "message"),
        [
            ({"available": np.ones(11, bool)}, r"bool\(11,\), expected bool\(12,\)"),
            ({"available": np.ones(12)}, r"float64\(12,\)"),
            ({"cohort_size": 0}, "cohort_size is 0"),
            ({"cohort_size": 2.5}, "cohort_size is 2.5"),
            ({"features": np.ones((12, 2))}, r"expected \(12, 0\)"),
        ],
    )
    def test_bad_views(self, view: dict[str, Any], message: str) -> None:
        with pytest.raises(DataError, match=message):
            bsfl().select(**view)

    def test_features_must_be_finite(self) -> None:
        selector = Selector(RBCSF(), Problem(num_clients=2, cohort_size=1, num_features=1))
        with pytest.raises(DataError, match="NaN or infinite"):
            selector.select(features=[[1.0], [np.nan]])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"num_clients": 0}, "num_clients is 0"),
            ({"cohort_size": 0}, "cohort_size is 0"),
            ({"cohort_size": True}, "cohort_size is True"),
            ({"num_samples": np.array([1, 2])}, r"shape \(2,\)"),
            ({"num_samples": np.array([1, -2, 3])}, "integers >= 0"),
            ({"num_samples": np.array([1.5, 2, 3])}, "integers >= 0"),
            ({"num_samples": np.zeros(3, int)}, "no data are worth anything"),
            ({"quality": np.zeros(3)}, "no data are worth anything"),
            ({"quality": np.array([0.5, np.nan, 1.0])}, r"numbers in \[0, 1\]"),
            ({"quality": np.array([0.5, 1.5, 1.0])}, r"numbers in \[0, 1\]"),
            ({"clusters": np.array([0, -1, 2])}, "labels >= 0"),
        ],
    )
    def test_bad_problems(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(DataError, match=message):
            Problem(**{"num_clients": 3, "cohort_size": 1, **arguments})

    def test_features_that_are_promised_must_come(self) -> None:
        selector = Selector(RBCSF(), Problem(num_clients=2, cohort_size=1, num_features=1))
        with pytest.raises(DataError, match=r"2.*1"):
            selector.select()
        with pytest.raises(DataError, match="real numbers"):
            selector.select(features=[["a"], ["b"]])

    def test_a_class_is_no_policy(self) -> None:
        policy: Any = BSFL
        with pytest.raises(ConfigError, match=r"BSFL\(\)"):
            Selector(policy, Problem(num_clients=2, cohort_size=1))

    def test_the_cohort_cannot_be_changed_by_the_caller(self) -> None:
        cohort = bsfl().select()
        with pytest.raises(ValueError, match="read-only"):
            cohort.clients[0] = 5

    @pytest.mark.parametrize("seed", [-1, 1.5, True, None])
    def test_bad_seeds(self, seed: Any) -> None:
        with pytest.raises(DataError, match="seed"):
            Selector(Random(), Problem(num_clients=3, cohort_size=1), seed=seed)

    def test_the_truth_reaches_oracles_only(self) -> None:
        seen: list[Truth | None] = []

        @dataclass(frozen=True, kw_only=True, slots=True)
        class Spy(Random):
            def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
                seen.append(view.truth)
                return Random.select(self, state, view, rng)

        truth = Truth(mean_latency_seconds=np.ones(3), mean_speed=np.ones(3))
        Selector(Spy(), Problem(num_clients=3, cohort_size=1)).select(truth=truth)
        assert seen == [None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed(PolicyTraits):
    """Chooses whatever it was made with."""

    name: ClassVar[str] = "fixed"
    choice: Callable[[RoundView], Selection]

    def init(self, problem: Problem) -> Any:
        return Random().init(problem)

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        return self.choice(view)

    def observe(self, state: Any, selection: Selection, feedback: Feedback) -> None:
        pass


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([0, 0, 1], "ids must increase, none twice"),
        ([2, 1, 0], "ids must increase"),
        ([0, 1, 7], r"it chose \[7\], who are not available"),
        ([0, 1, 12], "of 12 clients"),
        ([-1, 0, 1], "of 12 clients"),
        ([0, 1], "2 clients when 11 were available and m was 3"),
        ([0, 1, 2, 3], "4 clients when 11 were available"),
    ],
)
def test_a_policy_that_chooses_wrongly_is_stopped(clients: list[int], message: str) -> None:
    policy = Fixed(choice=lambda view: Selection(round=view.round, clients=np.array(clients)))
    available = np.ones(12, bool)
    available[7] = False
    with pytest.raises(PolicyError, match=message):
        Selector(policy, Problem(num_clients=12, cohort_size=3)).select(available=available)


class TestSaveAndRestore:
    @pytest.mark.parametrize("open_round", [False, True])
    def test_continues_bit_for_bit(self, tmp_path: Path, open_round: bool) -> None:
        selector = bsfl(40, 4, num_samples=np.arange(1, 41), quality=np.linspace(0.5, 1, 40))
        play(selector, 30)
        if open_round:
            selector.select()
        selector.save(tmp_path / "selector.npz")
        restored = Selector.restore(tmp_path / "selector.npz", BSFL())
        if open_round:
            for one in (selector, restored):
                assert one.pending is not None
                clients = one.pending.clients
                one.observe(Feedback(round=31, clients=clients, latency_seconds=np.ones(4)))
        assert play(restored, 30) == play(selector, 30)
        assert state_of(restored) == state_of(selector)

    def test_counts_of_refused_rows_survive(self, tmp_path: Path) -> None:
        selector = bsfl()
        clients = selector.select().clients
        selector.observe(Feedback(round=1, clients=clients, latency_seconds=np.full(3, np.nan)))
        selector.save(tmp_path / "s.npz")
        restored = Selector.restore(tmp_path / "s.npz", BSFL())
        assert restored.refused == {"latency not finite and positive": 3}

    def test_another_policy_is_refused(self, tmp_path: Path) -> None:
        bsfl().save(tmp_path / "s.npz")
        others: list[Policy[Any]] = [BSFL(alpha=9.0), Random()]
        for other in others:
            with pytest.raises(StateError, match="hyper-parameters"):
                Selector.restore(tmp_path / "s.npz", other)

    def test_a_hyper_parameter_that_was_added_since_has_its_default(self, tmp_path: Path) -> None:
        bsfl().save(tmp_path / "s.npz")
        arrays, meta = states.from_bytes((tmp_path / "s.npz").read_bytes(), source="s")
        del meta["policy"]["beta"]
        (tmp_path / "s.npz").write_bytes(states.to_bytes(arrays, meta))
        assert Selector.restore(tmp_path / "s.npz", BSFL()).round == 1
        with pytest.raises(StateError, match="same policy"):
            Selector.restore(tmp_path / "s.npz", BSFL(beta=2.0))

    def test_a_file_of_ours_that_is_no_selector(self, tmp_path: Path) -> None:
        (tmp_path / "s.npz").write_bytes(states.to_bytes({}, {}))
        with pytest.raises(StateError):
            Selector.restore(tmp_path / "s.npz", BSFL())

    @pytest.mark.parametrize("version", [2, 4, 6])
    def test_a_selector_of_another_version(self, version: int) -> None:
        arrays, meta = states.from_bytes(bsfl().to_bytes(), source="s")
        assert meta["format"] == 5
        image = states.to_bytes(arrays, {**meta, "format": version})
        with pytest.raises(StateError, match=str(version)):
            Selector.from_bytes(image, BSFL(), source="s")

    def test_missing_and_damaged_files(self, tmp_path: Path) -> None:
        path = tmp_path / "s.npz"
        with pytest.raises(StateError, match="cannot read"):
            Selector.restore(path, BSFL())
        bsfl(1000).save(path)
        image = path.read_bytes()
        for broken in (b"", image[: len(image) // 2], b"not a zip file", image[:-200]):
            path.write_bytes(broken)
            with pytest.raises(StateError, match=re.escape(f"{path} is damaged")):
                Selector.restore(path, BSFL())

    def test_a_flipped_bit_is_noticed(self, tmp_path: Path) -> None:
        path = tmp_path / "s.npz"
        bsfl(1000).save(path)
        image = bytearray(path.read_bytes())
        image[len(image) // 3] ^= 1
        path.write_bytes(bytes(image))
        with pytest.raises(StateError):
            Selector.restore(path, BSFL())


class TestJoining:
    def test_new_clients_are_unseen_and_old_ones_keep_their_history(self) -> None:
        selector = Selector(BSFL(), Problem(num_clients=6, cohort_size=2), newcomer_quota=1.0)
        play(selector, 20)
        before = selector.state.speed.inverse.count.copy()
        assert selector.join(3).tolist() == [6, 7, 8]
        assert selector.state.speed.inverse.count.tolist() == [*before.tolist(), 0, 0, 0]
        explored = {client for cohort in play(selector, 2) for client in cohort}
        assert {6, 7, 8} <= explored  # unseen clients have an infinite index
        assert float(selector.state.target_share) == pytest.approx(2 / 9)

    def test_shares_are_worked_out_anew(self) -> None:
        selector = bsfl(2, 1, num_samples=np.array([10, 30]))
        selector.join(1, num_samples=np.array([60]))
        assert selector.state.target_share.tolist() == pytest.approx([0.1, 0.3, 0.6])

    def test_while_a_round_is_open(self) -> None:
        selector = bsfl(6, 2)
        cohort = selector.select()
        selector.join(1)
        selector.observe(Feedback(round=1, clients=cohort.clients, latency_seconds=np.ones(2)))
        assert selector.state.speed.inverse.count.sum() == 2

    def test_nobody_is_owed_for_rounds_before_it_joined(self) -> None:
        selector = Selector(RBCSF(beta=0.5), Problem(num_clients=4, cohort_size=2))
        play(selector, 100)
        selector.join(1)
        cohorts = play(selector, 20)
        # Each of the 5 is owed 0.5 a round from now on; with 100 rounds of debt it would be in all.
        assert 1 <= sum(4 in cohort for cohort in cohorts) < 20

    def test_what_joins_must_be_described_like_the_rest(self) -> None:
        with pytest.raises(DataError, match="num_samples"):
            bsfl(2, 1, num_samples=np.array([1, 2])).join(1)
        with pytest.raises(DataError):
            bsfl(2, 1).join(1, clusters=np.array([0]))
        with pytest.raises(DataError, match=r"shape \(2,\)"):
            bsfl(2, 1, num_samples=np.array([1, 2])).join(1, num_samples=np.array([3, 4]))
        wrong: list[Any] = [0, -1, 1.5, True]
        for count in wrong:
            with pytest.raises(DataError, match="count"):
                bsfl(2, 1).join(count)


def planned(**more: Any) -> "Fixed":
    """A policy that chooses 1, 4 and 6, and says so much more."""
    return Fixed(
        choice=lambda view: Selection(round=view.round, clients=np.array([1, 4, 6]), **more)
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"order": np.array([0, 1])}, "its order is"),
        ({"order": np.array([0, 1, 1])}, "each of the positions 0 … 2 once"),
        ({"order": np.array([1, 4, 6])}, "each of the positions 0 … 2 once"),
        ({"quota": 0}, "its quota is 0"),
        ({"quota": 2.0}, "its quota is 2.0"),
        ({"preferred": np.array([True, False, True])}, "needs a quota"),
        ({"quota": 2, "preferred": np.array([1, 0, 1])}, "a bool for each client"),
        ({"quota": 2, "preferred": np.array([True])}, "a bool for each client"),
    ],
)
def test_a_policy_that_closes_its_round_wrongly_is_stopped(
    more: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        Selector(planned(**more), Problem(num_clients=12, cohort_size=3)).select()


def test_order_and_quota_of_an_open_round_are_saved() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Planner(PolicyTraits):
        name: ClassVar[str] = "planner"

        def init(self, problem: Problem) -> Any:
            return states.NoState()

        def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
            return Selection(
                round=view.round,
                clients=np.array([1, 4, 6]),
                order=np.array([2, 0, 1]),
                quota=2,
                preferred=np.array([True, False, True]),
            )

        def observe(self, state: Any, selection: Selection, feedback: Feedback) -> None:
            pass

    policy = Planner()
    selector = Selector(policy, Problem(num_clients=12, cohort_size=3))
    selector.select()
    restored = Selector.from_bytes(selector.to_bytes(), policy, source="here")
    assert restored.pending is not None
    assert restored.pending.order is not None
    assert restored.pending.preferred is not None
    assert restored.pending.order.tolist() == [2, 0, 1]
    assert restored.pending.quota == 2
    assert restored.pending.preferred.tolist() == [True, False, True]


class TestWhatDescribesClients:
    def test_attributes_and_expectations_are_saved_and_grow(self) -> None:
        attributes, seconds = np.arange(24.0).reshape(12, 2), np.linspace(1, 2, 12)
        selector = bsfl(attributes=attributes, expected_seconds=seconds)
        restored = Selector.from_bytes(selector.to_bytes(), BSFL(), source="here")
        restored.join(1, attributes=[[7.0, 8.0]], expected_seconds=[3.0])
        assert restored.problem.attributes is not None
        assert restored.problem.expected_seconds is not None
        assert restored.problem.attributes.tolist() == [*attributes.tolist(), [7.0, 8.0]]
        assert restored.problem.expected_seconds.tolist() == [*seconds.tolist(), 3.0]

    def test_joining_clients_need_as_many_attributes(self) -> None:
        selector = bsfl(attributes=np.ones((12, 2)))
        with pytest.raises(DataError):
            selector.join(1)
        with pytest.raises(DataError, match=r"1.*3"):
            selector.join(1, attributes=[[1.0, 2.0, 3.0]])

    @pytest.mark.parametrize(
        "attributes", [np.ones(12), np.ones((11, 2)), np.full((12, 1), np.nan), [["a"]] * 12]
    )
    def test_attributes_that_cannot_be(self, attributes: Any) -> None:
        with pytest.raises(DataError, match="attributes"):
            Problem(num_clients=12, cohort_size=3, attributes=attributes)

    @pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, np.inf])
    def test_expectations_that_cannot_be(self, seconds: float) -> None:
        with pytest.raises(DataError, match="expected_seconds"):
            Problem(num_clients=2, cohort_size=1, expected_seconds=np.array([1.0, seconds]))


class TestForecasts:
    def test_they_reach_the_policy(self) -> None:
        heard: list[tuple[list[bool], list[bool]]] = []

        def choice(view: RoundView) -> Selection:
            assert view.forecast is not None
            this, following = view.forecast(30.0)
            heard.append((this.tolist(), following.tolist()))
            return Selection(round=view.round, clients=np.array([0]))

        selector = Selector(Fixed(choice=choice), Problem(num_clients=2, cohort_size=1))
        selector.select(forecast=lambda _: (np.array([True, True]), np.array([False, True])))
        assert heard == [([True, True], [False, True])]

    def test_one_that_does_not_tell_of_everybody_is_refused(self) -> None:
        def choice(view: RoundView) -> Selection:
            assert view.forecast is not None
            view.forecast(30.0)
            return Selection(round=view.round, clients=np.array([0]))

        selector = Selector(Fixed(choice=choice), Problem(num_clients=2, cohort_size=1))
        with pytest.raises(DataError, match=r"expected bool\(2,\)"):
            selector.select(forecast=lambda _: (np.ones(2, np.bool_), np.ones(1, np.bool_)))


class TestScores:
    def test_only_while_a_round_is_open(self) -> None:
        selector = bsfl()
        with pytest.raises(CallOrderError):
            selector.scores()
        play(selector, 1)
        with pytest.raises(CallOrderError):
            selector.scores()

    def test_scores_of_the_wrong_form_are_the_policys_fault(self) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Boaster(Fixed):
            def scores(self, state: Any, view: RoundView) -> dict[str, Any]:
                return {"score": np.ones(3)}

        policy = Boaster(choice=lambda view: Selection(round=view.round, clients=np.array([0])))
        selector = Selector(policy, Problem(num_clients=2, cohort_size=1))
        selector.select()
        with pytest.raises(PolicyError, match=r"score 'score' is float64\(3,\)"):
            selector.scores()
