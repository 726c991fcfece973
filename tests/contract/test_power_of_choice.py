"""Power-of-Choice beyond what its golden values say: candidates, polls, silence."""

from collections import Counter, defaultdict
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedmuster import PowerOfChoice
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.power_of_choice import LossState

LOSS = np.array([0.1, 0.4, 0.2, 0.5, 0.3])


class Poll:
    """Answers with what each client has, and remembers who was asked for what."""

    def __init__(self, loss: FloatArray = LOSS) -> None:
        self.loss = loss
        self.asked: list[tuple[list[int], int | None]] = []

    def __call__(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        self.asked.append((clients.tolist(), batch_size))
        return self.loss[clients]


def five(policy: PowerOfChoice, cohort_size: int = 2) -> Selector[LossState]:
    problem = Problem(num_clients=5, cohort_size=cohort_size)
    return Selector(policy, problem, newcomer_quota=1.0)


def play(selector: Selector[LossState], loss: FloatArray = LOSS, *, silent: int = -1) -> list[int]:
    """A round in which the cohort reports its losses, all but ``silent``; the cohort."""
    chosen = selector.select()
    selector.observe(
        Feedback(
            round=chosen.round,
            clients=chosen.clients,
            latency_seconds=np.ones(len(chosen.clients)),
            completed=chosen.clients != silent,
            signals={"loss": loss[chosen.clients]},
        )
    )
    cohort: list[int] = chosen.clients.tolist()
    return cohort


class TestCandidates:
    @pytest.mark.parametrize("samples", [None, np.array([1, 2, 3, 4, 10])])
    def test_are_drawn_in_proportion_to_data_without_replacement(
        self, samples: IntArray | None
    ) -> None:
        """Against the probabilities of all 10 pairs, by a chi-square test at level 0.001."""
        rounds, policy = 4000, PowerOfChoice(variant="pow-d", num_candidates=2)
        state = policy.init(Problem(num_clients=5, cohort_size=1, num_samples=samples))
        poll = Poll()
        view = RoundView(
            round=1, cohort_size=1, available=np.ones(5, dtype=np.bool_), ask_loss=poll
        )
        for seed in range(rounds):
            chosen = policy.select(state, view, stream(seed, POLICY, 1)).clients
            candidates, _ = poll.asked[-1]
            assert chosen.tolist() == [max(candidates, key=LOSS.__getitem__)]
        found = Counter(tuple(candidates) for candidates, _ in poll.asked)
        size = [1] * 5 if samples is None else samples.tolist()
        chance: dict[tuple[int, ...], float] = defaultdict(float)
        for one, other in permutations(range(5), 2):
            second = size[other] / (sum(size) - size[one])
            chance[min(one, other), max(one, other)] += size[one] / sum(size) * second
        expected = [rounds * share for share in chance.values()]
        assert stats.chisquare([found[pair] for pair in chance], expected).pvalue > 0.001

    @pytest.mark.parametrize(
        ("wanted", "asked"), [(None, 4), (1, 2), (2, 2), (3, 3), (4, 4), (99, 4)]
    )
    def test_number_between_cohort_size_and_all_who_are_available(
        self, wanted: int | None, asked: int
    ) -> None:
        poll = Poll()
        selector = five(PowerOfChoice(variant="pow-d", num_candidates=wanted))
        available = np.arange(5) != 3
        selector.select(available=available, ask_loss=poll)
        ((candidates, _),) = poll.asked
        assert len(set(candidates)) == asked
        assert 3 not in candidates

    def test_clients_without_data_come_last(self) -> None:
        problem = Problem(num_clients=3, cohort_size=1, num_samples=np.array([0, 5, 5]))
        for seed in range(20):
            poll = Poll()
            policy = PowerOfChoice(variant="pow-d", num_candidates=2)
            Selector(policy, problem, seed=seed).select(ask_loss=poll)
            assert poll.asked == [([1, 2], None)]


class TestPolls:
    def test_pow_d_asks_for_everything_and_cpow_d_for_a_mini_batch(self) -> None:
        for policy, batch_size in (
            (PowerOfChoice(variant="pow-d"), None),
            (PowerOfChoice(variant="cpow-d", batch_size=7), 7),
        ):
            poll = Poll()
            assert five(policy).select(ask_loss=poll).clients.tolist() == [1, 3]
            assert poll.asked == [([0, 1, 2, 3, 4], batch_size)]

    def test_rpow_d_asks_nobody(self) -> None:
        poll = Poll()
        five(PowerOfChoice()).select(ask_loss=poll)
        assert poll.asked == []

    @pytest.mark.parametrize("lie", [np.nan, np.inf, -np.inf])
    def test_a_client_gains_nothing_by_an_answer_that_is_no_number(self, lie: float) -> None:
        loss = LOSS.copy()
        loss[3] = lie
        chosen = five(PowerOfChoice(variant="pow-d"), 4).select(ask_loss=Poll(loss))
        assert chosen.clients.tolist() == [0, 1, 2, 4]

    def test_nobody_answers_with_a_number(self) -> None:
        poll = Poll(np.full(5, np.nan))
        assert len(five(PowerOfChoice(variant="pow-d")).select(ask_loss=poll).clients) == 2

    @pytest.mark.parametrize("variant", ["pow-d", "cpow-d"])
    def test_without_a_model_it_says_what_to_do(self, variant: Any) -> None:
        selector = five(PowerOfChoice(variant=variant))
        with pytest.raises(DataError, match=rf"'{variant}' asks clients.*train one.*'rpow-d'"):
            selector.select()
        assert selector.select(ask_loss=Poll()).round == 1  # the round is not lost

    def test_as_many_answers_as_questions(self) -> None:
        selector = five(PowerOfChoice(variant="pow-d", num_candidates=3))
        with pytest.raises(DataError, match=r"ask_loss.*5.*3"):
            selector.select(ask_loss=lambda clients, *, batch_size=None: LOSS)


class TestLastLosses:
    def test_everybody_once_then_the_highest(self) -> None:
        selector = five(PowerOfChoice(), 1)
        assert sorted(client for _ in range(5) for client in play(selector)) == [0, 1, 2, 3, 4]
        assert play(selector) == [3]
        learned = LOSS.copy()
        learned[3] = 0.35
        assert play(selector, learned) == [3]
        assert play(selector, learned) == [1]

    def test_silence_counts_as_the_median_of_the_others(self) -> None:
        selector = five(PowerOfChoice(), 1)
        for _ in range(5):
            play(selector)
        assert play(selector, silent=3) == [3]
        assert selector.state.loss[3] == pytest.approx(0.25)  # of 0.1, 0.4, 0.2, 0.3
        assert play(selector) == [1]

    def test_a_client_that_never_answers_is_not_chosen_for_ever(self) -> None:
        """Everybody's loss falls with every training, so all take turns, the dead client too."""
        selector, loss = five(PowerOfChoice(), 1), LOSS + 1.0
        times: Counter[int] = Counter()
        for _ in range(200):
            (client,) = play(selector, loss, silent=3)
            loss[client] *= 0.99
            times[client] += 1
        assert 0 < times[3] <= 60

    def test_without_losses_it_is_uniform(self) -> None:
        selector, rounds = five(PowerOfChoice(), 2), 500
        times: Counter[int] = Counter()
        for t in range(1, rounds + 1):
            clients = selector.select().clients
            selector.observe(Feedback(round=t, clients=clients, latency_seconds=np.ones(2)))
            times.update(clients.tolist())
        # In cohorts of 2 of 5 a count has variance rounds · 0.4 · 0.6; five standard deviations.
        assert all(abs(times[k] - 0.4 * rounds) < 5 * (rounds * 0.24) ** 0.5 for k in range(5))

    def test_newcomers_are_unseen(self) -> None:
        selector = five(PowerOfChoice(), 5)
        play(selector)
        selector.join(1)
        assert 5 in selector.select(cohort_size=1).clients


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "pow"}, "variant = 'pow', expected one of 'pow-d', 'cpow-d', 'rpow-d'"),
        ({"num_candidates": 0}, "num_candidates = 0, expected an integer >= 1"),
        ({"batch_size": 0}, "batch_size = 0, expected an integer >= 1"),
    ],
)
def test_bad_hyper_parameters(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PowerOfChoice(**arguments)
