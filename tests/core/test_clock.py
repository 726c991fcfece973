"""Latencies from the server's clock and from reports that may be lies."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest

from fedmuster import BSFL, CSUCB
from fedmuster.core.errors import DataError, StateError
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem
from fedmuster.core.selector import Selector
from fedmuster.core.trust.clock import Clock, queue_seconds

EVERYONE = np.arange(10)
TRUE = np.linspace(1.0, 10.0, 10)
NONE = np.full(10, np.nan)
K, COHORT, ROUNDS, SEEDS = 100, 10, 100, range(4)


def test_without_reports_it_is_what_the_server_saw() -> None:
    assert Clock().latency_seconds(EVERYONE, TRUE, NONE).tolist() == TRUE.tolist()


def test_honest_reports_are_mostly_taken_as_they_are() -> None:
    clock = Clock()
    rng = np.random.default_rng(1)
    exact = 0
    for _ in range(50):
        elapsed = TRUE + 5.0 + rng.uniform(0, 0.2, 10)
        latency = clock.latency_seconds(EVERYONE, elapsed, TRUE)
        exact += int((latency == TRUE).sum())
        assert latency == pytest.approx(TRUE, abs=0.2)  # no more than the noise of the overhead
    assert exact > 0.9 * 50 * len(TRUE)
    assert not clock.disbelieved.any()
    assert clock.usual_overhead_seconds == pytest.approx(5.1, abs=0.05)


def test_a_lie_is_replaced_by_what_the_server_saw_less_the_usual_overhead() -> None:
    clock = Clock()
    claimed = TRUE.copy()
    claimed[7:] /= 10
    overhead = 5.0 + np.linspace(0, 0.1, 10)
    latency = clock.latency_seconds(EVERYONE, TRUE + overhead, claimed)
    assert latency[:7] == pytest.approx(TRUE[:7])
    # The median of the gaps, lies included, is that of the sixth and seventh honest client.
    usual = float(np.median(TRUE + overhead - claimed))
    assert clock.usual_overhead_seconds == pytest.approx(usual)
    assert latency[7:] == pytest.approx((TRUE + overhead - usual)[7:])
    assert clock.disbelieved.tolist() == [0] * 7 + [1] * 3


def test_one_wild_gap_of_an_honest_client_is_seen_and_soon_forgotten() -> None:
    clock = Clock()
    for round_ in range(12):
        elapsed = TRUE + 5.0 + 0.01 * ((EVERYONE + round_) % 5)
        elapsed[0] += 30.0 * (round_ == 10)  # its link was down for half a minute
        latency = clock.latency_seconds(EVERYONE, elapsed, TRUE)
        assert latency[0] == pytest.approx(31.0 if round_ == 10 else 1.0, abs=0.1)


def test_a_minority_cannot_move_the_usual_overhead() -> None:
    clock = Clock()
    claimed = TRUE.copy()
    claimed[:4] = [0.0, 1e9, np.inf, -5.0]
    clock.latency_seconds(EVERYONE, TRUE + 5.0, claimed)
    assert clock.usual_overhead_seconds == pytest.approx(5.0)


def test_a_report_is_never_longer_than_what_the_server_saw() -> None:
    clock = Clock()
    latency = clock.latency_seconds(np.array([3]), np.array([2.0]), np.array([50.0]))
    assert latency.tolist() == [2.0]
    assert clock.usual_overhead_seconds == 0.0


def test_who_is_not_believed_is_never_faster_than_it_says() -> None:
    clock = Clock()
    for round_ in range(10):
        overhead = 5.0 + 0.01 * ((EVERYONE + round_) % 5)
        overhead[0] += 3.0  # a slow link, every time
        latency = clock.latency_seconds(EVERYONE, TRUE + overhead, TRUE)
        assert latency[0] == pytest.approx(4.0, abs=0.1)
    seldom = TRUE.copy()
    seldom[0] = 9.0
    assert clock.latency_seconds(EVERYONE, seldom + 1.0, seldom)[0] == 9.0


def test_lies_show_when_there_are_many_answers() -> None:
    """Four of ten report 1 s too little: twice the spread of an honest overhead."""
    clock = Clock()
    rng = np.random.default_rng(6)
    liars = EVERYONE >= 6
    for _ in range(15):
        elapsed = TRUE + 5.0 + rng.normal(0.0, 0.5, 10)
        latency = clock.latency_seconds(EVERYONE, elapsed, np.where(liars, TRUE - 1.0, TRUE))
    assert (latency[liars] > (TRUE - 1.0)[liars]).all()


def test_a_report_longer_than_the_usual_overhead_leaves_is_believed() -> None:
    clock = Clock()
    elapsed = TRUE + 5.0
    elapsed[0] = 3.0  # it is next door: less than the usual overhead in all
    claimed = TRUE.copy()
    claimed[0] = 2.0
    assert clock.latency_seconds(EVERYONE, elapsed, claimed)[0] == 2.0


def test_nobody_is_infinitely_fast() -> None:
    clock = Clock()
    claimed = TRUE.copy()
    claimed[0] = 1e-9  # within the usual overhead: the server cannot tell
    elapsed = TRUE + 5.0 + np.linspace(0, 3, 10)
    elapsed[0] -= 1.0
    typical = float(np.median(TRUE))
    assert clock.latency_seconds(EVERYONE, elapsed, claimed)[0] >= 0.05 * typical
    silent = NONE.copy()
    latency = clock.latency_seconds(EVERYONE, np.full(10, 1e-12), silent)
    assert (latency > 0).all()


def test_what_cannot_be_checked_is_at_most_twice_as_fast_as_typical() -> None:
    rng = np.random.default_rng(4)
    overhead = 5.0 + rng.uniform(0, 30, 10)
    claimed = np.full(10, 2.0)
    claimed[0] = 0.01
    overhead[0] = 10.0
    latency = Clock().latency_seconds(EVERYONE, claimed + overhead, claimed)
    assert latency[0] == pytest.approx(1.0)


def test_cold_processes_are_excused_where_processes_live_on() -> None:
    clock = Clock()
    cold = EVERYONE == 2
    claimed = TRUE.copy()
    claimed[2] = 60.0  # imports
    latency = clock.latency_seconds(EVERYONE, claimed + 1.0, claimed, cold)
    warm = np.delete(TRUE, 2)
    assert latency[2] == pytest.approx(np.median(warm))
    assert np.delete(latency, 2) == pytest.approx(warm)


def test_where_every_message_starts_a_process_nobody_is_excused() -> None:
    latency = Clock().latency_seconds(EVERYONE, TRUE + 1, TRUE, np.ones(10, dtype=np.bool_))
    assert latency == pytest.approx(TRUE)


def test_a_few_warm_ones_do_not_make_cold_an_excuse() -> None:
    latency = Clock().latency_seconds(EVERYONE, TRUE + 1, TRUE, EVERYONE > 2)
    assert latency == pytest.approx(TRUE)


def test_whoever_waits_for_cold_processes_of_others_is_not_condemned() -> None:
    """Four clients that take as long as each other, in two processes that import for 10 s."""
    clock = Clock()
    claimed = np.array([10.3, 10.4, 0.1, 0.1])
    cold = np.array([True, True, False, False])
    latency = clock.latency_seconds(np.arange(4), np.array([10.5, 10.5, 10.6, 10.7]), claimed, cold)
    assert latency == pytest.approx(0.1)
    assert clock.usual_seconds == pytest.approx(0.1)
    assert not clock.disbelieved.any()
    assert clock.usual_overhead_seconds < 0.2


SLOW = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 8.0, 10.0])


def test_one_that_claims_to_share_a_process_changes_nobodys_time() -> None:
    """In a deployment, where everybody is cold each time; the slowest lies."""
    overhead = np.random.default_rng(0).uniform(5.0, 6.0, 10)
    claimed, cold = SLOW.copy(), np.ones(10, dtype=np.bool_)
    claimed[9], cold[9] = 0.001, False
    clock = Clock()
    latency = clock.latency_seconds(EVERYONE, SLOW + overhead, claimed, cold)
    assert latency[1:9] == pytest.approx(SLOW[1:9])
    assert latency[9] > 9.0
    assert clock.disbelieved.tolist() == [0] * 9 + [1]


def test_a_newcomer_that_claims_to_share_a_process_changes_nobodys_time() -> None:
    rng = np.random.default_rng(1)
    clock, everyone, cold = Clock(), np.arange(20), np.ones(21, dtype=np.bool_)
    true = np.append(np.linspace(1.0, 5.0, 20), 10.0)
    for _ in range(20):
        seen = true[:20] + rng.uniform(5.0, 6.0, 20)
        clock.latency_seconds(everyone, seen, true[:20], cold[:20])
    seen = true + rng.uniform(5.0, 6.0, 21)
    honest = Clock.from_bytes(clock.to_bytes())
    expected = honest.latency_seconds(np.arange(21), seen, true, cold)
    claimed = true.copy()
    claimed[20], cold[20] = 0.001, False
    latency = clock.latency_seconds(np.arange(21), seen, claimed, cold)
    # Nobody but by what one vote of 21 moves the usual overhead, which varies by a second.
    assert np.abs(latency[:20] - expected[:20]).max() < 0.1
    assert latency[20] > 9.0


def test_who_waits_shorter_than_others_import_did_not_wait_for_them() -> None:
    claimed = np.array([10.3, 10.4, 0.1, 0.1])
    cold = np.array([True, True, False, False])
    seen = claimed + np.array([0.2, 0.2, 5.0, 5.0])
    latency = Clock().latency_seconds(np.arange(4), seen, claimed, cold)
    assert latency[:2] == pytest.approx(claimed[:2])
    assert (latency[2:] > 2.0).all()


def test_being_cold_all_the_time_is_no_excuse() -> None:
    clock = Clock()
    slow = [
        float(clock.latency_seconds(EVERYONE, TRUE + 1.0, TRUE, EVERYONE == 9)[9])
        for _ in range(30)
    ]
    assert np.count_nonzero(np.array(slow) < 9.9) == 2
    assert slow[0] < 9.9 < slow[1]


def test_a_sleeper_is_seen_through() -> None:
    """Fast for 30 rounds, then slow while it still reports as before; the overhead is noisy."""
    clock = Clock()
    rng = np.random.default_rng(3)
    seen = []
    for round_ in range(60):
        true = TRUE.copy()
        true[0] = 1.0 if round_ < 30 else 4.0
        reported = TRUE.copy()
        elapsed = true + 5.0 + rng.uniform(0, 3, 10)
        seen.append(clock.latency_seconds(EVERYONE, elapsed, reported)[0])
    assert np.median(seen[:30]) == pytest.approx(1.0)
    assert min(seen[40:]) > 3.0


def test_a_client_that_joins_and_a_restart_change_nothing() -> None:
    rng = np.random.default_rng(5)
    clock, restored = Clock(), Clock()
    for round_ in range(25):
        clients = rng.permutation(4 + round_)[:4]
        elapsed, reported = rng.uniform(5, 9, 4), rng.uniform(0, 5, 4)
        cold = rng.random(4) < 0.2
        expected = clock.latency_seconds(clients, elapsed, reported, cold)
        assert restored.latency_seconds(clients, elapsed, reported, cold).tolist() == list(expected)
        restored = Clock.from_bytes(restored.to_bytes())


def test_refusals_say_what_came() -> None:
    two = np.array([1.0, 2.0])
    with pytest.raises(DataError, match="distinct"):
        Clock().latency_seconds(np.array([1, 1]), two, two)
    with pytest.raises(DataError, match=r"elapsed.*finite"):
        Clock().latency_seconds(np.array([0, 1]), np.array([1.0, np.nan]), two)
    with pytest.raises(DataError, match=r"reported has shape \(1,\)"):
        Clock().latency_seconds(np.array([0, 1]), two, np.array([1.0]))
    with pytest.raises(StateError, match="clock"):
        Clock.from_bytes(b"something else")


# -- a queue is not slowness -----------------------------------------------------------------------


def _queued(work: FloatArray, workers: int, luck: np.random.Generator) -> FloatArray:
    """When each of the works is seen to be done, one after the other on a few workers."""
    free, done = [0.0] * workers, []
    for seconds in work.tolist():
        start = heappop(free) + luck.uniform(0.002, 0.005)
        done.append(start + seconds)
        heappush(free, start + seconds)
    return np.asarray(np.ceil(np.array(done) / 0.02) * 0.02)  # when somebody looks


def _asked_in_a_queue(policy: Any, seed: int, *, known: bool) -> tuple[IntArray, int]:
    """How often each of 20 clients of 0.2 s is asked, 10 a round by two workers, and doubts."""
    clock, luck = Clock(), np.random.default_rng(seed)
    selector: Selector[Any] = Selector(policy, Problem(num_clients=20, cohort_size=10), seed=seed)
    asked = np.zeros(20, dtype=np.int64)
    for round_ in range(1, 46):
        clients = selector.select().clients
        work = 0.2 * luck.gamma(2000, 1 / 2000, 10)
        elapsed = _queued(work, 2, luck)
        latency = clock.latency_seconds(clients, elapsed, work, shared_workers=known)
        selector.observe(Feedback(round=round_, clients=clients, latency_seconds=latency))
        asked[clients] += 1
    return asked, int(clock.disbelieved.sum())


@pytest.mark.parametrize("policy", [CSUCB(), BSFL()], ids=lambda policy: policy.name)
def test_the_place_in_a_queue_does_not_count_as_slowness(policy: Any) -> None:
    asked, doubts = zip(
        *(_asked_in_a_queue(policy, seed, known=True) for seed in SEEDS), strict=True
    )
    assert sum(doubts) == 0
    total = np.sum(asked, axis=0)
    expected = total.mean()
    # Of chance alone 19 degrees of freedom exceed 30 in one of 20 cases; a choice in turns is more
    # even than chance.
    assert (np.square(total - expected) / expected).sum() < 30.0
    assert total[10:].sum() == pytest.approx(total[:10].sum(), rel=0.03)
    plays = [_asked_in_a_queue(policy, seed, known=False) for seed in SEEDS]
    unknown, doubts = zip(*plays, strict=True)
    assert sum(doubts) > 100
    late = np.sum(unknown, axis=0)[16:].sum()
    assert late < 0.85 * total[16:].sum()  # who has a high id waits


@pytest.mark.parametrize("workers", [2, 8, 10])
def test_a_queue_is_no_excuse_for_lies(workers: int) -> None:
    """The slowest 30 of 100 report a tenth, and gain no more than where the queue is not known."""

    def share(seed: int, known: bool, lying: bool) -> float:
        clock, luck = Clock(), np.random.default_rng(seed)
        mean = luck.uniform(0.5, 4.0, K)
        slow = np.argsort(np.argsort(mean)) >= 70
        selector: Selector[Any] = Selector(
            CSUCB(), Problem(num_clients=K, cohort_size=COHORT), seed=seed
        )
        slots = 0
        for round_ in range(1, ROUNDS + 1):
            clients = selector.select().clients
            work = mean[clients]
            elapsed = _queued(work, workers, luck)
            said = np.where(slow[clients] & lying, work / 10, work)
            latency = clock.latency_seconds(clients, elapsed, said, shared_workers=known)
            selector.observe(Feedback(round=round_, clients=clients, latency_seconds=latency))
            slots += int(slow[clients].sum())
        return slots / (COHORT * ROUNDS)

    lying = np.mean([share(seed, True, True) for seed in range(3)])
    unknown = np.mean([share(seed, False, True) for seed in range(3)])
    assert lying <= unknown + 0.015


def test_works_that_overlap_did_not_wait_for_each_other() -> None:
    seconds, workers = queue_seconds(TRUE + 5.0, TRUE)
    assert workers > 2
    assert seconds.tolist() == [0.0] * 10
    nobody, _ = queue_seconds(np.array([]), np.array([]))
    assert nobody.tolist() == []


# -- lying does not pay ----------------------------------------------------------------------------

Believe = Callable[[IntArray, FloatArray, FloatArray], FloatArray]


def _share_of_slow(
    policy: Any, seed: int, *, lying: bool, deployed: bool, believe: Believe
) -> float:
    """The slots that the slowest 30 % of 100 clients get; lying, they report a tenth.

    Overheads are those of polling, or as in a deployment: 5 s, up to 3 s of polling, and a tail.
    """
    mean = np.random.default_rng(seed).uniform(0.5, 4.0, K)
    slow = np.argsort(np.argsort(mean)) >= 70
    selector: Selector[Any] = Selector(
        policy, Problem(num_clients=K, cohort_size=COHORT), seed=seed
    )
    slots = 0
    for round_ in range(1, ROUNDS + 1):
        clients = selector.select().clients
        luck = np.random.default_rng([seed, round_])
        true = mean * luck.gamma(50, 1 / 50, K)
        overhead = luck.uniform(0, 0.2, K)
        if deployed:
            overhead = 5.0 + luck.uniform(0, 3, K) + luck.exponential(1, K)
        claimed = np.where(slow & lying, true / 10, true)
        latency = believe(clients, (true + overhead)[clients], claimed[clients])
        selector.observe(Feedback(round=round_, clients=clients, latency_seconds=latency))
        slots += int(slow[clients].sum())
    return slots / (COHORT * ROUNDS)


@pytest.mark.parametrize("policy", [CSUCB(), BSFL()], ids=lambda policy: policy.name)
@pytest.mark.parametrize(("deployed", "most"), [(False, 0.01), (True, 0.03)])
def test_lying_about_time_hardly_gains_slots(policy: Any, deployed: bool, most: float) -> None:
    """Of all slots, in the mean over paired seeds, against more than 0.1 where reports are trusted.

    Where the overhead is small lies show at once. In a deployment a few answers must come first,
    and by then BSFL has given liars 0.02 (over 16 other seeds, with a standard error of 0.002).
    """

    def gain(believe: Callable[[], Believe]) -> float:
        shares = [
            _share_of_slow(policy, seed, lying=True, deployed=deployed, believe=believe())
            - _share_of_slow(policy, seed, lying=False, deployed=deployed, believe=believe())
            for seed in SEEDS
        ]
        return float(np.mean(shares))

    assert gain(lambda: Clock().latency_seconds) <= most
    assert gain(lambda: lambda clients, seen, said: said) > 0.1


def test_among_a_few_a_liar_is_seen_through_after_some_answers() -> None:
    """One of five that needs 3 s and says nothing of it, under 3 to 6.5 s of overhead."""
    true = np.array([0.01, 1.0, 0.2, 0.5, 3.0])
    liar, believed, answers = 4, np.zeros(30), np.zeros(30)
    for seed in range(100):
        rng, clock, nth = np.random.default_rng(seed), Clock(), 0
        for _ in range(30):
            chosen = np.sort(rng.choice(5, 2, replace=False))
            reported = np.where(chosen == liar, 0.001, true[chosen])
            elapsed = true[chosen] + rng.uniform(3.0, 6.5, 2)
            latency = clock.latency_seconds(chosen, elapsed, reported, np.ones(2, np.bool_))
            if liar in chosen:
                answers[nth] += 1
                believed[nth] += latency[chosen == liar][0] < 1.0
                nth += 1
    assert believed[1] < 0.35 * answers[1]
    assert believed[4:].sum() < 0.05 * answers[4:].sum()
