"""FedCS, Extended FedCS and both MAB-CS: candidates, schedules and scores, worked by hand."""

from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.mab_cs.fedcs import ExtendedFedCS, FedCS
from fedmuster.policies.mab_cs.policy import ElementWiseMABCS, NaiveMABCS
from fedmuster.policies.mab_cs.resources import requested
from fedmuster.testing.playing import replay

Answers = dict[int, tuple[float, float] | None]
"""(t_UD, t_UL) of each client in the order of upload; None without an answer."""

TRIED: list[Policy[Any]] = [
    FedCS(),
    ExtendedFedCS(),
    NaiveMABCS(),
    ElementWiseMABCS(),
    FedCS(request_fraction=0.4),
    NaiveMABCS(request_fraction=0.4),
    ElementWiseMABCS(request_fraction=0.4),
]


def played(round_: int, answers: Answers) -> tuple[Selection, Feedback]:
    """A round; its rows come in another order than the uploads."""
    order = np.array(list(answers))
    clients = np.sort(order)
    times = np.array([answers[k] or (np.nan, np.nan) for k in clients.tolist()])
    completed = np.array([answers[k] is not None for k in clients.tolist()])
    selection = Selection(round=round_, clients=clients, order=np.searchsorted(clients, order))
    feedback = Feedback(
        round=round_,
        clients=clients,
        latency_seconds=np.where(completed, times.sum(axis=1), np.inf),
        completed=completed,
        signals={"compute_seconds": times[:, 0], "upload_seconds": times[:, 1]},
    )
    return selection, feedback


def after(policy: Policy[Any], num_clients: int, *rounds: Answers) -> Any:
    history = [played(t, answers) for t, answers in enumerate(rounds, start=1)]
    return replay(policy, Problem(num_clients=num_clients, cohort_size=2), history)


def view_of(num_clients: int, size: int, *, round_: int = 9, away: tuple[int, ...] = ()) -> Any:
    available = ~np.isin(np.arange(num_clients), away)
    return RoundView(round=round_, cohort_size=size, available=available)


def uploads(policy: Policy[Any], state: Any, size: int, *, seed: int = 0, **kwargs: Any) -> Any:
    """The clients in the order in which they upload."""
    num_clients = len(policy.scores(state, view_of(1, 1))["score"])
    chosen = policy.select(state, view_of(num_clients, size, **kwargs), np.random.default_rng(seed))
    assert chosen.order is not None
    return chosen.clients[chosen.order].tolist()


def score(policy: Policy[Any], state: Any) -> Any:
    return policy.scores(state, view_of(1, 1))["score"]


# --- FedCS --------------------------------------------------------------------------------------


def test_fedcs_by_hand() -> None:
    """(t_UD, t_UL) = (3, 2), (1, 4), (9, 1), (5, 5): first scores -7, -9, -11, -15.

    0 goes first (t = 7, e = 5, Td = 2); then 2 adds 4 + 1 = 5 and 1 adds 2 + 4 = 6. After 2 nobody
    is waited for and 1 goes before 3.
    """
    state = after(FedCS(), 4, {1: (1.0, 4.0), 0: (3.0, 2.0)}, {3: (5.0, 5.0), 2: (9.0, 1.0)})
    assert score(FedCS(), state).tolist() == [-7.0, -9.0, -11.0, -15.0]
    assert uploads(FedCS(), state, 4) == [0, 2, 1, 3]
    assert uploads(FedCS(), state, 2) == [0, 2]
    assert uploads(FedCS(), state, 2, away=(0,)) == [1, 2]  # 9; then 2: e = 5, 4 + 1 against 6


def test_fedcs_knows_the_last_time_and_extended_fedcs_the_last_five() -> None:
    rounds: list[Answers] = [{0: (float(i), 2.0 * i), 1: (3.5, 7.0)} for i in (90, 1, 2, 3, 4, 5)]
    assert score(FedCS(), after(FedCS(), 2, *rounds)).tolist() == [-(5 + 20), -(3.5 + 14)]
    extended = after(ExtendedFedCS(), 2, *rounds)
    assert score(ExtendedFedCS(), extended).tolist() == [-(3 + 12), -(3.5 + 14)]
    two = ExtendedFedCS(window=2)
    assert score(two, after(two, 2, *rounds)).tolist() == [-(4.5 + 18), -(3.5 + 14)]


@pytest.mark.parametrize("policy", [FedCS(), ExtendedFedCS(), NaiveMABCS(), ElementWiseMABCS()])
def test_the_unseen_go_first_in_random_order(policy: Policy[Any]) -> None:
    """Of 6 clients 3 are unseen; all orders of them equally often, chi-square at 1e-3."""
    state = after(policy, 6, {0: (1.0, 1.0), 4: (2.0, 2.0)}, {2: (1.0, 1.0), 0: (3.0, 0.5)})
    assert np.isnan(score(policy, state)).tolist() == [False, True, False, True, False, True]
    orders = [tuple(uploads(policy, state, 4, seed=seed)) for seed in range(600)]
    assert {frozenset(order[:3]) for order in orders} == {frozenset((1, 3, 5))}
    heads = [order[:3] for order in orders]
    times = [heads.count(head) for head in sorted(set(heads))]
    assert len(times) == 6
    assert stats.chisquare(times).pvalue > 1e-3


# --- MAB-CS -------------------------------------------------------------------------------------


def test_naive_score_by_hand() -> None:
    """Eq. 4 with alpha = 10 on increments by Eq. 1.

    Round 1, uploads 2 (3, 2), 0 (1, 4): 7; then Td 2 -> 4, no wait, 4: 6.
    Round 2, uploads 0 (9, 1), 2 (2, 1): 1 + 9 + 1 = 11; then 0 + 0 + 1 = 1.
    Round 3, upload 1 (0, 3): 6.
    N = 2, 1, 2 of 5; means 8.5, 6, 4.
    """
    rounds: list[Answers] = [
        {2: (3.0, 2.0), 0: (1.0, 4.0)},
        {0: (9.0, 1.0), 2: (2.0, 1.0)},
        {1: (0.0, 3.0)},
    ]
    policy = NaiveMABCS(alpha=10.0)
    state = after(policy, 4, *rounds)
    twice, once = sqrt(log(5) / 4), sqrt(log(5) / 2)
    expected = [-0.85 + twice, -0.6 + once, -0.4 + twice]
    assert score(policy, state)[:3] == pytest.approx(expected, rel=1e-14)
    assert np.isnan(score(policy, state)[3])
    assert uploads(policy, state, 4) == [3, 1, 2, 0]  # 0.297, 0.234, -0.216
    assert uploads(policy, state, 2, away=(3,)) == [1, 2]
    # By default alpha is the mean of all five increments, 31 / 5.
    usual = score(NaiveMABCS(), after(NaiveMABCS(), 4, *rounds))
    assert usual[0] == pytest.approx(-8.5 / 6.2 + twice, rel=1e-14)


def test_naive_increments_are_in_the_order_of_uploads() -> None:
    """2 prolongs by 2 + 3 + 2; then 0 by 2 + 0 + 4; then 1, ready at 9 when they are done, by 1."""
    state = after(NaiveMABCS(), 3, {2: (3.0, 2.0), 0: (1.0, 4.0), 1: (9.0, 1.0)})
    assert state.of_client.mean.tolist() == [6.0, 1.0, 7.0]


def test_naive_increments_without_an_order_are_of_who_was_ready_first() -> None:
    selection, feedback = played(1, {2: (3.0, 2.0), 0: (1.0, 4.0)})
    policy = NaiveMABCS(alpha=1.0)
    state = policy.init(Problem(num_clients=3, cohort_size=2))
    policy.observe(state, replace(selection, order=None), feedback)
    # 0 first: 4 + 1 + 4 = 9; then 2: ready at 3 < 5, 2.
    assert state.of_client.mean.tolist() == [9.0, 0.0, 2.0]


def test_element_wise_score_by_hand() -> None:
    """Eq. 5-7 with beta = 10: N = 2, 1, 2, 1 of 6.

    Means of 0: (5, 3); of 1: (2, 8); of 2: (10, 0.5); of 3: (30, 40).
    """
    rounds: list[Answers] = [
        {0: (4.0, 2.0), 2: (9.0, 1.0)},
        {2: (11.0, 0.0), 1: (2.0, 8.0)},
        {3: (30.0, 40.0), 0: (6.0, 4.0)},
    ]
    policy = ElementWiseMABCS(beta=10.0)
    state = after(policy, 5, *rounds)
    twice, once = sqrt(log(6) / 4), sqrt(log(6) / 2)  # 0.669, 0.947
    update = [0.5 - twice, 0.2 - once, 1.0 - twice, 3.0 - once]  # -0.169, -0.747, 0.331, 2.053
    upload = [0.3 - twice, 0.8 - once, 0.05 - twice, 4.0 - once]  # -0.369, -0.147, -0.619, 3.053
    first = [-(max(u, 0) + max(c, 0) + u) for c, u in zip(update, upload, strict=True)]
    assert score(policy, state)[:4] == pytest.approx(first, rel=1e-13)
    assert np.isnan(score(policy, state)[4])
    # First scores 0.369, 0.147, 0.289, -8.16: 0 after the unseen. Then e = max(0, -0.169) - 0.369
    # = -0.369, against which 2 waits 0.331 + 0.369 - 0.619 = 0.080 and 1 not at all, -0.147: so 1,
    # and after it 2 before 3.
    assert uploads(policy, state, 5) == [4, 0, 1, 2, 3]
    # By default beta is the mean of both times over all answers: (62 / 6 + 55 / 6) / 2.
    usual = score(ElementWiseMABCS(), after(ElementWiseMABCS(), 5, *rounds))
    beta = 117 / 12
    assert usual[3] == pytest.approx(-(30 / beta + 2 * 40 / beta - 3 * once), rel=1e-13)


def test_bonus_falls_with_selections_and_grows_with_time() -> None:
    """The text of the paper has the former the other way round."""
    often: list[Answers] = [{0: (1.0, 1.0)}] * 9
    for policy in (NaiveMABCS(alpha=1.0), ElementWiseMABCS(beta=1.0)):
        alike = score(policy, after(policy, 3, {1: (1.0, 1.0)}, *often))
        assert alike[1] > alike[0]
        later = score(policy, after(policy, 3, {1: (1.0, 1.0)}, *often, *often))
        assert later[1] > alike[1]


# --- Failures, and answers that say less --------------------------------------------------------


@pytest.mark.parametrize("policy", [FedCS(), ExtendedFedCS(), ElementWiseMABCS()])
def test_no_answer_counts_as_the_longest_times(policy: Policy[Any]) -> None:
    state = after(policy, 3, {0: (7.0, 1.0), 1: None}, {2: (2.0, 5.0), 0: (1.0, 1.0)})
    assert state.update.of_client.mean[1] == 7.0
    assert state.upload.of_client.mean[1] == 1.0  # as of then
    again = after(policy, 3, {0: (7.0, 1.0), 2: (2.0, 5.0)}, {1: None})
    assert (again.update.of_client.mean[1], again.upload.of_client.mean[1]) == (7.0, 5.0)
    assert again.update.of_client.count[1] == 1


def test_no_answer_prolongs_by_the_longest_and_holds_up_nobody() -> None:
    state = after(NaiveMABCS(), 3, {1: None, 0: (3.0, 2.0), 2: (1.0, 4.0)})
    assert state.of_client.mean.tolist() == [7.0, 7.0, 6.0]
    assert state.of_client.count.tolist() == [1, 1, 1]


@pytest.mark.parametrize("policy", TRIED, ids=repr)
def test_who_never_answers_is_not_chosen_for_ever(policy: Policy[Any]) -> None:
    """Client 3 of 8 never answers; it is asked less often than by a uniform choice of 2."""
    problem = Problem(num_clients=8, cohort_size=2)
    state = policy.init(problem)
    times = 0
    for t in range(1, 201):
        selection = policy.select(state, view_of(8, 2, round_=t), stream(1, POLICY, t))
        seconds = np.asarray(1.0 + 0.1 * selection.clients, dtype=np.float64)
        feedback = Feedback(
            round=t,
            clients=selection.clients,
            latency_seconds=seconds,
            completed=selection.clients != 3,
            signals={"compute_seconds": seconds, "upload_seconds": seconds},
        )
        policy.observe(state, selection, feedback)
        times += 3 in selection.clients
    assert 1 <= times < 50


def test_latency_alone_counts_as_update() -> None:
    state = FedCS().init(Problem(num_clients=3, cohort_size=2))
    clients = np.array([0, 2])
    asked = Selection(round=1, clients=clients, order=np.array([1, 0]))
    feedback = Feedback(round=1, clients=clients, latency_seconds=np.array([4.0, 6.0]))
    FedCS().observe(state, asked, feedback)
    assert state.update.of_client.mean.tolist() == [4.0, 0.0, 6.0]
    assert state.upload.of_client.mean.tolist() == [0.0, 0.0, 0.0]


def test_a_client_cannot_boast_of_negative_times() -> None:
    state = after(FedCS(), 2, {0: (-1e9, -1e9), 1: (1.0, 1.0)})
    assert score(FedCS(), state).tolist() == [0.0, -3.0]
    assert (state.update.of_client.mean[0], state.upload.of_client.mean[0]) == (0.0, 0.0)


# --- The resource request -----------------------------------------------------------------------


def test_all_policies_have_the_same_candidates_first() -> None:
    """With C = 0.1 of 100 and m = 10, the candidates are the cohort."""
    view = view_of(100, 10, round_=3)
    drawn = requested(view, 0.1, stream(5, POLICY, 3))
    assert isinstance(drawn, np.ndarray)
    kinds: list[Any] = [FedCS, ExtendedFedCS, NaiveMABCS, ElementWiseMABCS]
    for kind in kinds:
        policy = kind(request_fraction=0.1)
        state = policy.init(Problem(num_clients=100, cohort_size=10))
        cohort = policy.select(state, view, stream(5, POLICY, 3)).clients
        np.testing.assert_array_equal(cohort, np.sort(drawn))


@pytest.mark.parametrize(
    ("fraction", "size", "away", "count"),
    [(0.07, 5, 0, 7), (0.071, 5, 0, 8), (0.01, 5, 0, 5), (0.5, 5, 60, 40), (0.2, 5, 97, 3)],
)
def test_as_many_candidates_as_the_paper_says(
    fraction: float, size: int, away: int, count: int
) -> None:
    """``ceil(K C)`` of all K, but no fewer than can be used and no more than are available."""
    view = view_of(100, size, away=tuple(range(away)))
    rows = requested(view, fraction, np.random.default_rng(0))
    clients = np.arange(100)[rows]
    assert len(set(clients.tolist())) == count
    assert clients.min() >= away


def test_only_candidates_are_chosen() -> None:
    """Who is by far the best is chosen as often as it is a candidate: binomial test at 1e-3."""
    rounds: list[Answers] = [{k: (1.0 + 9.0 * (k > 0), 1.0) for k in range(20)}]
    policy = FedCS(request_fraction=0.3)
    state = after(policy, 20, *rounds)
    times = sum(0 in uploads(policy, state, 2, seed=seed) for seed in range(500))
    assert stats.binomtest(times, 500, 0.3).pvalue > 1e-3


# --- Configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        FedCS(request_fraction=0.1),
        ExtendedFedCS(request_fraction=0.1, window=3),
        NaiveMABCS(request_fraction=0.1, alpha=1000.0),
        ElementWiseMABCS(request_fraction=0.1, beta=50.0),
        ElementWiseMABCS(),
    ],
    ids=repr,
)
def test_configs_survive_tables(policy: Any) -> None:
    kinds = {policy.name: type(policy)}
    assert named(kinds, to_table(policy), key=(), what="policy") == policy


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (FedCS, {"request_fraction": 0.0}),
        (FedCS, {"request_fraction": 1.5}),
        (ExtendedFedCS, {"window": 0}),
        (ExtendedFedCS, {"window": 2.5}),
        (NaiveMABCS, {"alpha": 0.0}),
        (NaiveMABCS, {"alpha": float("nan")}),
        (ElementWiseMABCS, {"beta": -1.0}),
        (ElementWiseMABCS, {"beta": float("inf")}),
    ],
)
def test_refusals(kind: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        kind(**fields)


def test_who_fails_before_anybody_has_answered_counts_as_slow_as_the_round() -> None:
    policy = ElementWiseMABCS()
    state = policy.init(Problem(num_clients=2, cohort_size=1))
    nobody = Feedback(
        round=1,
        clients=np.array([1]),
        latency_seconds=np.array([np.inf]),
        completed=np.array([False]),
        round_seconds=300.0,
    )
    policy.observe(state, Selection(round=1, clients=np.array([1])), nobody)
    assert state.update.of_client.mean.tolist() == [0.0, 300.0]
    assert state.upload.of_client.mean.tolist() == [0.0, 300.0]
