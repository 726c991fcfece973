"""Rounds: the same luck for everyone, round times by hand, deadlines and dropouts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray, Selection, Truth
from fedmuster.worlds import (
    Bernoulli,
    BSFLGroups,
    BSFLRates,
    ContextualWorld,
    ExponentialSizes,
    LatencyWorld,
    LogNormal,
    Markov,
    Normal,
    PauseGroups,
    World,
    WorldRound,
)
from fedmuster.worlds.round_time import RoundTime

TRIED: dict[str, World] = {
    "bsfl-groups": BSFLGroups(num_clients=40),
    "bsfl-groups markov": BSFLGroups(num_clients=40, availability=Markov(up=0.3, down=0.2)),
    "bsfl-rates dropout": BSFLRates(dropout=0.2, deadline_seconds=0.8),
    "pause-groups": PauseGroups(num_clusters=6, availability=Bernoulli(probability=0.7)),
    "latency exponential": LatencyWorld(num_clients=40, data=ExponentialSizes()),
    "latency zipf": LatencyWorld(num_clients=40, distribution=Normal(), spacing="zipf"),
    "latency log-normal": LatencyWorld(num_clients=40, distribution=LogNormal(), spacing="even"),
    "latency normal": LatencyWorld(num_clients=40, distribution=Normal()),
    "contextual": ContextualWorld(num_clients=40),
}


def assert_same(a: WorldRound, b: WorldRound) -> None:
    assert a.round == b.round
    np.testing.assert_array_equal(a.available, b.available)
    np.testing.assert_array_equal(a.latency_seconds, b.latency_seconds)
    np.testing.assert_array_equal(a.truth.mean_speed, b.truth.mean_speed)
    assert (a.features is None) == (b.features is None)
    if a.features is not None and b.features is not None:
        np.testing.assert_array_equal(a.features, b.features)


def cohort(round_number: int, *clients: int) -> Selection:
    return Selection(round=round_number, clients=np.array(clients, dtype=np.int64))


def round_of(
    latency: list[float],
    *,
    available: list[bool] | None = None,
    deadline: float = np.inf,
    clusters: list[int] | None = None,
    delay: float = 0.0,
    keep_first: int | None = None,
) -> WorldRound:
    """A round written by hand."""
    seconds: FloatArray = np.array(latency)
    labels: IntArray | None = None if clusters is None else np.array(clusters)
    return WorldRound(
        round=3,
        available=np.ones(len(latency), dtype=np.bool_)
        if available is None
        else np.array(available),
        features=None,
        latency_seconds=seconds,
        expectation=lambda: Truth(mean_latency_seconds=seconds, mean_speed=0.1 / seconds),
        time=RoundTime(
            deadline_seconds=deadline,
            keep_first=keep_first,
            clusters=labels,
            cluster_delay_seconds=delay,
        ),
    )


@pytest.mark.parametrize("name", TRIED)
def test_rounds_repeat_in_any_order_and_in_a_new_run(name: str) -> None:
    world = TRIED[name]
    in_order = [world.start(5).realise(t) for t in range(1, 9)]  # each from a fresh start
    run = world.start(5)
    for t in (4, 1, 8, 8, 2, 7, 3, 6, 5, 1):
        assert_same(run.realise(t), in_order[t - 1])


@settings(max_examples=25)
@given(order=st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_a_chain_of_availability_can_be_asked_in_any_order(order: list[int]) -> None:
    world = BSFLGroups(num_clients=7, availability=Markov(up=0.2, down=0.3))
    run = world.start(1)
    for t in order:
        np.testing.assert_array_equal(run.realise(t).available, world.start(1).realise(t).available)


@pytest.mark.parametrize("name", TRIED)
def test_rounds_and_seeds_differ(name: str) -> None:
    run = TRIED[name].start(5)
    first = run.realise(1).latency_seconds
    assert not np.array_equal(first, run.realise(2).latency_seconds)
    assert not np.array_equal(first, TRIED[name].start(6).realise(1).latency_seconds)


@pytest.mark.parametrize("name", TRIED)
def test_luck_does_not_depend_on_the_choice(name: str) -> None:
    """Two policies that choose differently see the same next rounds, and the same clients."""
    left, right = TRIED[name].start(5), TRIED[name].start(5)
    for t in range(1, 6):
        a, b = left.realise(t), right.realise(t)
        assert_same(a, b)
        everyone = np.flatnonzero(a.available)
        heard = a.play(cohort(t, *everyone[:3])).feedback
        again = b.play(cohort(t, *everyone)).feedback
        np.testing.assert_array_equal(heard.latency_seconds, again.latency_seconds[:3])
        assert_same(a, right.realise(t))  # playing changed nothing


def test_options_leave_the_rest_of_the_luck_alone() -> None:
    plain = BSFLGroups(num_clients=40).start(2)
    other = BSFLGroups(
        num_clients=40,
        availability=Bernoulli(),
        data=ExponentialSizes(),
        dropout=0.3,
        deadline_seconds=9.0,
    ).start(2)
    np.testing.assert_array_equal(plain.groups, other.groups)
    latency = other.realise(4).latency_seconds
    stayed = np.isfinite(latency)
    assert 0 < np.count_nonzero(stayed) < 40
    np.testing.assert_array_equal(latency[stayed], plain.realise(4).latency_seconds[stayed])
    clustered, free = PauseGroups(num_clusters=6).start(2), PauseGroups().start(2)
    np.testing.assert_array_equal(clustered.groups, free.groups)
    np.testing.assert_array_equal(
        clustered.realise(1).latency_seconds, free.realise(1).latency_seconds
    )


def test_a_round_lasts_as_long_as_its_slowest_client() -> None:
    outcome = round_of([0.5, 0.2, 0.9]).play(cohort(3, 0, 1))
    assert outcome.round_seconds == 0.5
    assert outcome.feedback.round == 3
    np.testing.assert_array_equal(outcome.feedback.clients, [0, 1])
    np.testing.assert_array_equal(outcome.feedback.latency_seconds, [0.5, 0.2])
    np.testing.assert_array_equal(outcome.feedback.answered, [True, True])


def test_nobody_takes_no_time() -> None:
    drawn = round_of([0.5, 0.2], clusters=[0, 0], delay=0.05, deadline=1.0)
    outcome = drawn.play(cohort(3))
    assert outcome.round_seconds == 0.0
    assert len(outcome.feedback.clients) == 0


def test_a_late_client_holds_the_round_until_the_deadline() -> None:
    drawn = round_of([0.5, 1.0, 1.5, np.inf], deadline=1.0)
    on_time = drawn.play(cohort(3, 0, 1))
    assert on_time.round_seconds == 1.0
    np.testing.assert_array_equal(on_time.feedback.answered, [True, True])
    for missing in (2, 3):  # late, and dropped out
        outcome = drawn.play(cohort(3, 0, missing))
        assert outcome.round_seconds == 1.0
        np.testing.assert_array_equal(outcome.feedback.answered, [True, False])
        np.testing.assert_array_equal(outcome.feedback.latency_seconds, [0.5, np.inf])
    np.testing.assert_array_equal(drawn.latency_seconds, [0.5, 1.0, 1.5, np.inf])


def test_crowded_clusters_delay_the_round_but_no_client() -> None:
    drawn = round_of([0.1, 0.2, 0.3, 0.4, 0.5], clusters=[0, 0, 0, 4, 4], delay=0.05, deadline=9.0)
    spread = drawn.play(cohort(3, 2, 3))
    assert spread.round_seconds == 0.4
    # Two more than one in cluster 0, one more in cluster 4: 0.5 + 3 · 0.05.
    crowded = drawn.play(cohort(3, 0, 1, 2, 3, 4))
    assert crowded.round_seconds == pytest.approx(0.65)
    np.testing.assert_array_equal(crowded.feedback.latency_seconds, drawn.latency_seconds)


def test_play_refuses_what_cannot_happen() -> None:
    drawn = round_of([0.5, 0.2], available=[True, False])
    with pytest.raises(DataError, match="round 2 in round 3"):
        drawn.play(cohort(2, 0))
    with pytest.raises(DataError, match=r"1.*3"):
        drawn.play(cohort(3, 0, 1))
    with pytest.raises(DataError, match="round is 0"):
        BSFLRates().start(1).realise(0)


def test_shared_arrays_are_shared_and_read_only() -> None:
    run = BSFLGroups(num_clients=40).start(1)
    first, second = run.realise(1), run.realise(2)
    assert first.available is second.available
    assert first.truth is second.truth
    for array in (
        first.available,
        first.truth.mean_speed,
        first.truth.mean_latency_seconds,
        run.groups,
    ):
        assert not array.flags.writeable


@pytest.mark.parametrize("name", ["bsfl-rates dropout", "contextual", "latency exponential"])
def test_mean_speed_is_what_a_policy_observes(name: str) -> None:
    """``E[tau_min/tau · completed]``: a two-sided z-test at 1e-3 (Bonferroni over the clients)."""
    run = TRIED[name].start(11)
    rounds, K = 2000, run.problem.num_clients
    gap = np.empty((rounds, K))
    for t in range(1, rounds + 1):
        drawn = run.realise(t)
        feedback = drawn.play(cohort(t, *range(K))).feedback
        speed = np.where(feedback.answered, run.tau_min_seconds / feedback.latency_seconds, 0.0)
        gap[t - 1] = speed - drawn.truth.mean_speed
    error = gap.std(axis=0) / np.sqrt(rounds)
    assert np.all(np.abs(gap.mean(axis=0)) <= stats.norm.isf(1e-3 / 2 / K) * error + 1e-12)


def test_dropouts_come_at_their_rate() -> None:
    run = LatencyWorld(num_clients=1000, dropout=0.2, deadline_seconds=1e6).start(1)
    lost = sum(int(np.isinf(run.realise(t).latency_seconds).sum()) for t in range(1, 21))
    assert stats.binomtest(lost, 20_000, 0.2).pvalue > 1e-3


def test_over_selection_keeps_the_first_answers_and_waits_no_longer() -> None:
    drawn = round_of([0.9, 0.2, 0.5, 0.3, 0.4], keep_first=3)
    outcome = drawn.play(cohort(3, 0, 1, 2, 3, 4))
    np.testing.assert_array_equal(outcome.feedback.answered, [False, True, False, True, True])
    np.testing.assert_array_equal(outcome.feedback.latency_seconds, [np.inf, 0.2, np.inf, 0.3, 0.4])
    assert outcome.round_seconds == 0.4


def test_over_selection_waits_for_the_deadline_if_too_few_answer() -> None:
    drawn = round_of([np.inf, 0.2, 0.5, np.inf], keep_first=3, deadline=0.8)
    outcome = drawn.play(cohort(3, 0, 1, 2, 3))
    np.testing.assert_array_equal(outcome.feedback.answered, [False, True, True, False])
    assert outcome.round_seconds == 0.8


def test_over_selection_with_fewer_clients_than_wanted_waits_for_all_of_them() -> None:
    outcome = round_of([0.9, 0.2], keep_first=3, deadline=2.0).play(cohort(3, 0, 1))
    assert outcome.feedback.answered.all()
    assert outcome.round_seconds == 0.9


@pytest.mark.parametrize(("factor", "m", "asked"), [(1.0, 5, 5), (1.3, 10, 13), (1.3, 5, 7)])
def test_over_selection_asks_the_next_whole_number_of_clients(
    factor: float, m: int, asked: int
) -> None:
    world = BSFLRates(num_clients=40, cohort_size=m, over_selection=factor)
    assert world.start(1).num_to_ask == asked
