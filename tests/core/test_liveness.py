"""Silent clients rest, and newcomers have a quota, whatever the policy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmuster import Feedback, Problem, Selector
from fedmuster.core.errors import DataError
from fedmuster.core.liveness import DROUGHT_JOBS, LONGEST_REST, Liveness
from fedmuster.core.records import IntArray


def answer(selector: Selector[Any], silent: IntArray, *, late: Feedback | None = None) -> None:
    """Close the round: all but the silent clients answer."""
    assert selector.pending is not None
    clients = selector.pending.clients
    selector.observe(
        Feedback(
            round=selector.round,
            clients=clients,
            latency_seconds=np.asarray(1.0 + clients % 7, dtype=np.float64),
            completed=~np.isin(clients, silent),
            signals={"loss": (1.0 + clients % 3) / selector.round},  # training helps
            late=late,
        )
    )


def play(selector: Selector[Any], rounds: int, silent: IntArray) -> list[IntArray]:
    cohorts = []
    for _ in range(rounds):
        cohorts.append(selector.select().clients)
        answer(selector, silent)
    return cohorts


def share(cohorts: list[IntArray], clients: IntArray) -> float:
    everybody = np.concatenate(cohorts)
    return float(np.isin(everybody, clients).mean())


def longest_drought(cohorts: list[IntArray], silent: IntArray) -> int:
    longest = current = 0
    for cohort in cohorts:
        current = current + 1 if np.isin(cohort, silent).all() else 0
        longest = max(longest, current)
    return longest


def fleet(policy: str, **settings: Any) -> Selector[Any]:
    return Selector(policy, Problem(num_clients=100, cohort_size=10), seed=4, **settings)


NOBODY = np.empty(0, dtype=np.int64)


@pytest.mark.parametrize("count", [10, 30, 60, 90])
@pytest.mark.parametrize("policy", ["oort", "power-of-choice", "refl", "fedsuv", "random"])
def test_silent_clients_neither_stop_a_federation_nor_fill_it(policy: str, count: int) -> None:
    silent = np.random.default_rng(count).choice(100, count, replace=False)
    cohorts = play(fleet(policy), 200, silent)
    assert longest_drought(cohorts, silent) <= 50
    assert share(cohorts, silent) <= 1.5 * count / 100


def test_the_published_rules_are_a_setting_away() -> None:
    silent = np.arange(60)
    cohorts = play(fleet("power-of-choice", rest_after=0), 200, silent)
    assert longest_drought(cohorts, silent) > 150


class TestRests:
    def test_a_rest_doubles_with_each_further_silence_up_to_the_longest(self) -> None:
        liveness, client, round_, rests = Liveness(1), np.array([0]), 1, []
        for _ in range(14):
            liveness.heard(client, np.array([False]), round_=round_)
            first = next(t for t in range(round_ + 1, 999) if not liveness.resting(t)[0])
            rests.append(first - round_ - 1)
            round_ = first
        assert rests == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 64, 64]
        assert max(rests) == LONGEST_REST

    def test_one_answer_ends_it(self) -> None:
        liveness, client = Liveness(1), np.array([0])
        for round_ in range(1, 9):
            liveness.heard(client, np.array([False]), round_=round_)
        assert liveness.resting(9)[0]
        liveness.answered(client)
        assert not liveness.resting(9)[0]
        assert liveness.arrays() == {}

    def test_a_client_that_answers_late_does_not_rest(self) -> None:
        """Tempo hears of late answers: that the client is slow is its own affair."""
        problem = Problem(num_clients=2, cohort_size=2)
        selector: Selector[Any] = Selector("tempo", problem)
        for _ in range(9):
            selector.select()
            news = None
            if selector.round > 1:
                news = Feedback(clients=np.array([0]), latency_seconds=np.array([40.0]))
            answer(selector, np.array([0]), late=news)
        assert not selector.liveness.resting(selector.round).any()

    def test_no_place_stays_empty_for_a_rest(self) -> None:
        selector: Selector[Any] = Selector("random", Problem(num_clients=5, cohort_size=4))
        assert {len(cohort) for cohort in play(selector, 40, np.arange(3))} == {4}

    def test_where_all_answer_or_miss_at_times_nothing_changes(self) -> None:
        rng = np.random.default_rng(1)
        misses = [rng.choice(100, 10, replace=False) for _ in range(60)]
        cohorts = []
        for settings in ({}, {"rest_after": 0}):
            selector = fleet("bsfl", **settings)
            cohorts.append([play(selector, 1, silent)[0].tolist() for silent in misses])
        assert cohorts[0] == cohorts[1]

    def test_a_drought_ends_with_clients_that_answered_their_last_job(self) -> None:
        liveness, proven = Liveness(100), np.array([7, 9])
        liveness.heard(np.arange(10), np.isin(np.arange(10), proven), round_=1)
        silent = np.arange(10, 10 + DROUGHT_JOBS)
        liveness.heard(silent, np.zeros(DROUGHT_JOBS, dtype=np.bool_), round_=2)
        everyone, rng = np.ones(100, dtype=np.bool_), np.random.default_rng(0)
        chosen = liveness.choosable(everyone, round_=3, places=2, rng=rng)
        assert np.flatnonzero(chosen).tolist() == proven.tolist()
        more = liveness.choosable(everyone, round_=3, places=5, rng=rng)
        assert more.sum() == 5
        assert more[proven].all()
        assert not more[silent].any()  # clients that were never asked come first

    def test_a_policy_that_asks_everybody_sees_everybody(self) -> None:
        selector: Selector[Any] = Selector("all-clients", Problem(num_clients=6, cohort_size=2))
        assert {len(cohort) for cohort in play(selector, 30, np.arange(3))} == {6}

    def test_tickets_that_are_given_up_count(self) -> None:
        selector = fleet("power-of-choice")
        silent, decisions, longest = np.arange(90), 0, 0
        for _ in range(1500):
            while len(selector.tickets) < 10:
                selector.select(count=1)
                decisions += 1
            oldest = selector.tickets.numbers[:1]
            (part,), _ = selector.tickets.match(oldest, None)
            client = part.selection.clients
            if np.isin(client, silent).all():
                selector.give_up(oldest)
            else:
                selector.observe(
                    Feedback(clients=client, latency_seconds=np.ones(1), tickets=oldest)
                )
                longest, decisions = max(longest, decisions), 0
        assert max(longest, decisions) <= 50


class TestNewcomers:
    @pytest.mark.parametrize("policy", ["bsfl", "fedsuv", "oort", "random", "pisces"])
    @pytest.mark.parametrize("quota", [0.2, 0.05])
    def test_a_silent_flood_gets_its_quota_at_most(self, policy: str, quota: float) -> None:
        selector = fleet(policy, newcomer_quota=quota)
        play(selector, 20, NOBODY)
        flood = selector.join(100)
        cohorts = play(selector, 100, flood)
        shares = [share(cohorts[:t], flood) for t in range(1, 101)]
        assert max(shares) <= quota

    def test_it_does_so_ticket_by_ticket(self) -> None:
        selector = fleet("bsfl")
        play(selector, 20, NOBODY)
        flood, asked = selector.join(100), []
        for _ in range(400):
            selection = selector.select(count=1)
            asked.append(selection.clients)
            if np.isin(selection.clients, flood).all():
                selector.give_up(selector.tickets.numbers)
            else:
                selector.observe(
                    Feedback(
                        clients=selection.clients,
                        latency_seconds=np.ones(1),
                        tickets=selection.tickets,
                    )
                )
        assert 0.1 < share(asked, flood) <= 0.2

    def test_without_a_limit_a_flood_takes_nearly_every_place(self) -> None:
        selector = fleet("bsfl", newcomer_quota=1.0, rest_after=0)
        play(selector, 20, NOBODY)
        flood = selector.join(100)
        assert share(play(selector, 10, flood), flood) > 0.9

    def test_newcomers_that_answer_are_newcomers_no_more(self) -> None:
        selector = fleet("bsfl")
        play(selector, 20, NOBODY)
        honest = selector.join(20)
        play(selector, 15, NOBODY)
        assert not selector.liveness.newcomers[honest].any()
        assert selector.liveness.arrays() == {}

    def test_the_initial_fleet_is_no_flood(self) -> None:
        selector = fleet("bsfl")
        selector.join(50)
        assert not selector.liveness.newcomers.any()
        assert len(selector.select().clients) == 10

    def test_places_that_nobody_else_can_fill_go_to_newcomers(self) -> None:
        selector = fleet("random")
        play(selector, 5, NOBODY)
        flood = selector.join(100)
        available = np.arange(200) >= 97  # three clients of the first hundred
        cohort = selector.select(available=available).clients
        assert len(cohort) == 10
        assert np.isin(cohort, flood).sum() == 7

    def test_a_policy_that_chooses_few_earns_newcomers_few_places(self) -> None:
        """FedCS fills its deadline, not m places: the quota is of the places it does fill."""
        selector: Selector[Any] = Selector("fedcs", Problem(num_clients=50, cohort_size=20), seed=1)
        play(selector, 10, NOBODY)
        flood = selector.join(50)
        assert share(play(selector, 60, flood), flood) <= 0.2


class TestSaving:
    def test_a_run_goes_on_as_if_it_had_never_stopped(self, tmp_path: Path) -> None:
        steady, restored = (fleet("oort", rest_after=3, newcomer_quota=0.3) for _ in range(2))
        silent = np.arange(55)
        for t in range(60):
            if t == 20:
                steady.join(40)
                restored.join(40)
                silent = np.concatenate([silent, np.arange(100, 140)])
            restored.save(tmp_path / "s.npz")
            restored = Selector.restore(tmp_path / "s.npz", "oort")
            one, other = (play(selector, 1, silent)[0] for selector in (steady, restored))
            assert one.tolist() == other.tolist()
        assert (restored.liveness.rest_after, restored.liveness.newcomer_quota) == (3, 0.3)

    def test_the_image_of_a_federation_that_answers_says_nothing_of_it(self) -> None:
        selector = fleet("random")
        play(selector, 10, NOBODY)
        assert b"liveness" not in selector.to_bytes()


@pytest.mark.parametrize("wrong", [-1, 1.5, "5", None, True])
def test_a_wrong_number_of_jobs_is_refused(wrong: Any) -> None:
    with pytest.raises(DataError, match="rest_after"):
        fleet("random", rest_after=wrong)


@pytest.mark.parametrize("wrong", [0, -0.1, 1.1, np.nan, "0.2", None, True])
def test_a_wrong_quota_is_refused(wrong: Any) -> None:
    with pytest.raises(DataError, match="newcomer_quota"):
        fleet("random", newcomer_quota=wrong)


class TestOverSelection:
    """13 are asked and the first 10 count, so some that answer are late in every round."""

    def play(self, rounds: int, silent: IntArray, **settings: Any) -> list[IntArray]:
        selector, cohorts = fleet("random", **settings), []
        for _ in range(rounds):
            clients = selector.select(cohort_size=13).clients
            order = np.random.default_rng(selector.round).permutation(clients)
            first = order[~np.isin(order, silent)][:10]
            cohorts.append(clients)
            answer(selector, np.setdiff1d(clients, first))
        return cohorts

    def test_clients_that_lose_the_race_at_times_do_not_rest(self) -> None:
        one, other = self.play(150, NOBODY), self.play(150, NOBODY, rest_after=0)
        assert np.concatenate(one).tolist() == np.concatenate(other).tolist()

    def test_clients_that_never_answer_do(self) -> None:
        silent = np.arange(30)
        assert share(self.play(400, silent)[200:], silent) < 0.1
