"""Published terms add up to what policies choose by, and every policy can be explained by them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmuster import (
    BSFL,
    COCS,
    CSUCB,
    CSUCBQ,
    CUCB,
    PAUSE,
    POLICIES,
    RBCSF,
    ElementWiseMABCS,
    FedCS,
    Lifted,
    LinUCB,
    NaiveMABCS,
    Oort,
    Random,
    TiFL,
)
from fedmuster.bandits.means import DiscountedMean, WindowedMean
from fedmuster.bandits.rewards import repeats
from fedmuster.core.edges import EdgeView
from fedmuster.core.explaining import Moment
from fedmuster.core.policy import Policy
from fedmuster.core.records import BoolArray, Feedback, FloatArray, IntArray, Problem
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.experiments.journal import rounds_done
from fedmuster.experiments.replay import play_again
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation
from fedmuster.policies.explaining.best_set import BestSet, Swaps
from fedmuster.policies.explaining.simple_rules import Untold, rule_of
from fedmuster.policies.tifl import ByTier
from fedmuster.report.explain import explain, find_run, from_replay, rule_that_can_be_told
from fedmuster.report.points import Point

K, M = 9, 3
Round = tuple[BoolArray, IntArray, dict[str, FloatArray]]


def _played(policy: Policy[Any], *, rounds: int = 30, **problem: Any) -> list[Round]:
    """Who was available, chosen and thought what of, in rounds with partial availability."""
    rng = np.random.default_rng(1)
    speed = rng.uniform(0.5, 2.0, K)
    selector = Selector(policy, Problem(num_clients=K, cohort_size=M, **problem), seed=3)
    told = []
    for _ in range(rounds):
        available = rng.random(K) < 0.8
        selection = selector.select(available=available)
        told.append((available, selection.clients, selector.scores()))
        clients = selection.clients
        seconds = speed[clients] * rng.uniform(0.8, 1.2, len(clients))
        selector.observe(
            Feedback(
                round=selection.round,
                clients=clients,
                latency_seconds=seconds,
                completed=rng.random(len(clients)) < 0.9,
                signals={
                    "loss": rng.random(len(clients)),
                    "compute_seconds": seconds * 0.7,
                    "upload_seconds": seconds * 0.3,
                },
            )
        )
    return told


def _moment(policy: Policy[Any], round_: int, played: Round) -> Moment:
    available, cohort, terms = played
    return Moment(
        rule=rule_of(policy),
        meaning=policy.terms,
        label=policy.name,
        round=round_,
        cohort=cohort,
        available=available,
        terms=terms,
        absent={"offline": ~available},
        known=np.ones(K, dtype=np.bool_),
    )


Terms = Mapping[str, FloatArray]


@pytest.mark.parametrize(
    ("policy", "index"),
    [
        (BSFL(), lambda t: t["mean_speed"] + t["confidence_bonus"]),
        (BSFL(estimator=WindowedMean(window=3)), lambda t: t["mean_speed"] + t["confidence_bonus"]),
        (PAUSE(estimator=DiscountedMean()), lambda t: t["mean_speed"] + t["confidence_bonus"]),
        (BSFL(bonus="variance"), lambda t: t["mean_speed"] + t["confidence_bonus"]),
        (
            BSFL(bonus="minimax", estimator=WindowedMean(window=3)),
            lambda t: t["mean_speed"] + t["confidence_bonus"],
        ),
        (CSUCB(), lambda t: t["mean_reward"] + t["confidence_bonus"]),
        (CSUCB(bonus="variance"), lambda t: t["mean_reward"] + t["confidence_bonus"]),
        (
            CSUCBQ(queue_weight=0.3),
            lambda t: (
                0.7 * np.fmin(t["mean_reward"] + t["confidence_bonus"], 1) + 0.3 * t["owed_rounds"]
            ),
        ),
        (NaiveMABCS(), lambda t: t["time_term"] + t["confidence_bonus"]),
        (NaiveMABCS(alpha=2.0), lambda t: -t["mean_added_seconds"] / 2.0 + t["confidence_bonus"]),
        (
            ElementWiseMABCS(beta=2.0),
            lambda t: (
                -np.maximum(t["optimistic_upload"], 0)
                - np.maximum(t["mean_update_seconds"] / 2 - t["confidence_bonus"], 0)
                - (t["mean_upload_seconds"] / 2 - t["confidence_bonus"])
            ),
        ),
        (FedCS(), lambda t: -t["mean_update_seconds"] - 2 * t["mean_upload_seconds"]),
        (Oort(), lambda t: (t["statistical_utility"] + t["staleness_bonus"]) * t["speed_factor"]),
    ],
    ids=lambda value: getattr(value, "name", "index"),
)
def test_terms_make_the_score(policy: Policy[Any], index: Callable[[Terms], FloatArray]) -> None:
    finite = 0
    for _, _, terms in _played(policy):
        np.testing.assert_allclose(index(terms), terms["score"], rtol=1e-12)
        finite += int(np.isfinite(terms["score"]).sum())
    assert finite > 100


def test_bsfl_by_hand() -> None:
    """Three clients of 1, 2 and 4 seconds, each asked in turn: t = 5, m = 1 (Eq. 3, 9, 12, 13)."""
    selector = Selector(BSFL(alpha=3.0, tau_min_seconds=0.5), Problem(num_clients=3, cohort_size=1))
    latency, asked = np.array([1.0, 2.0, 4.0]), np.zeros(3)
    for _ in range(5):
        clients = selector.select().clients
        asked[clients] += 1
        selector.observe(
            Feedback(round=selector.round, clients=clients, latency_seconds=latency[clients])
        )
    selector.select()
    terms = selector.scores()
    np.testing.assert_allclose(terms["mean_speed"], [0.5, 0.25, 0.125])
    np.testing.assert_allclose(terms["confidence_bonus"], np.sqrt(2 * np.log(5) / asked))
    np.testing.assert_allclose(terms["generalisation"], 3.0 * (1 / 3 - asked / 6))
    np.testing.assert_array_equal(terms["times_asked"], asked)


def test_pause_by_hand() -> None:
    """Eq. 6, 7 without a ledger, what it says with one; zeta scales the mean."""
    policy = PAUSE(alpha=2.0, beta=2.0, gamma=5.0, zeta=3.0, tau_min_seconds=1.0)
    selector = Selector(policy, Problem(num_clients=2, cohort_size=2))
    selector.select()
    selector.observe(
        Feedback(round=1, clients=np.array([0, 1]), latency_seconds=np.array([2.0, 4.0]))
    )
    selector.select()
    terms = selector.scores()
    np.testing.assert_allclose(terms["mean_speed"], [1.5, 0.75])
    np.testing.assert_allclose(terms["privacy"], 5 * np.exp(-0.04) * np.ones(2))
    np.testing.assert_allclose(terms["generalisation"], 2 * 0.5**2 * np.ones(2))
    selector.observe(Feedback(round=2, clients=np.empty(0, np.int64), latency_seconds=np.empty(0)))
    selector.select(privacy_left=np.array([0.25, 0.5]))
    np.testing.assert_allclose(selector.scores()["privacy"], [1.25, 2.5])


def test_oort_by_hand() -> None:
    """U of 10 and 4, D of 1 and 2 s; the preferred duration is the shorter; both asked in 1."""
    policy = Oort(slow_penalty=2.0)
    selector = Selector(policy, Problem(num_clients=2, cohort_size=2), seed=1)
    selector.select()
    selector.observe(
        Feedback(
            round=1,
            clients=np.array([0, 1]),
            latency_seconds=np.array([1.0, 2.0]),
            signals={"loss": np.array([10.0, 4.0])},
        )
    )
    selector.select()
    terms = selector.scores()
    low = 0.999 * 4
    np.testing.assert_allclose(terms["statistical_utility"], [1.0, (4 - low) / (10 - low)])
    np.testing.assert_allclose(terms["staleness_bonus"], np.sqrt(0.1 * np.log(2)) * np.ones(2))
    np.testing.assert_allclose(terms["speed_factor"], [1.0, 0.25])


def test_naive_mab_cs_by_hand() -> None:
    """Alone with (3, 2) s a round takes 2 + 3 + 2 = 7; ln(sum N) / (2 N) is 0 after one round."""
    selector = Selector(NaiveMABCS(alpha=10.0), Problem(num_clients=1, cohort_size=1))
    for round_ in (1, 2):
        selector.select()
        selector.observe(
            Feedback(
                round=round_,
                clients=np.array([0]),
                latency_seconds=np.array([7.0]),
                signals={"compute_seconds": np.array([3.0]), "upload_seconds": np.array([2.0])},
            )
        )
    selector.select()
    terms = {name: float(values[0]) for name, values in selector.scores().items()}
    assert terms["mean_added_seconds"] == pytest.approx(7.0)
    assert terms["time_term"] == pytest.approx(-0.7)
    assert terms["confidence_bonus"] == pytest.approx(np.sqrt(np.log(2) / 4))


@pytest.mark.parametrize("policy", [BSFL(alpha=3.0), PAUSE(alpha=3.0, gamma=2.0, rho=0.4)])
def test_no_other_set_has_more_by_the_published_terms(policy: BSFL | PAUSE) -> None:
    clusters = np.arange(K) % 3
    rho = getattr(policy, "rho", 0.0)
    compared = 0
    for available, chosen, terms in _played(policy, clusters=clusters):
        weight = terms["generalisation"] + terms.get("privacy", np.zeros(K))

        def worth(
            cohort: IntArray, weight: FloatArray = weight, terms: Terms = terms
        ) -> tuple[float, float]:
            slowest = float(np.nan_to_num(terms["score"], nan=1e9)[cohort].min())
            return slowest, float(weight[cohort].mean()) - 3.0 * rho * repeats(clusters[cohort])

        sets = combinations(np.flatnonzero(available).tolist(), len(chosen))
        best = max(sum(worth(np.array(cohort))) for cohort in sets)
        assert sum(worth(chosen)) == pytest.approx(best)
        compared += 1
    assert compared == 30


@pytest.mark.parametrize(
    "policy",
    [BSFL(alpha=3.0), PAUSE(alpha=3.0, gamma=2.0, rho=0.4), RBCSF(patience=2.0)],
    ids=lambda policy: str(policy.name),
)
def test_swaps_never_gain_and_are_what_the_sets_are_worth(policy: Policy[Any]) -> None:
    """What is said of a client that was passed over is right for the best of all its swaps."""
    told = 0
    for number, played in enumerate(_played(policy, clusters=np.arange(K) % 3), start=1):
        moment = _moment(policy, number, played)
        for client in np.flatnonzero(moment.available).tolist():
            verdict = explain(moment, client=client).verdict
            assert verdict is not None
            assert "which is more" not in verdict, verdict
            told += "instead of" in verdict
    assert told > 100


def test_what_a_swap_would_cost_by_hand() -> None:
    """Of {0, 1} the slowest is 1; 2 is slower yet, and deserves more."""
    moment = Moment(
        rule=rule_of(BSFL(alpha=1.0)),
        meaning={},
        label="bsfl",
        round=9,
        cohort=np.array([0, 1]),
        available=np.array([True, True, True, False]),
        terms={
            "score": np.array([0.9, 0.8, 0.5, 0.1]),
            "mean_speed": np.array([0.6, 0.6, 0.2, 0.0]),
            "confidence_bonus": np.array([0.3, 0.2, 0.3, 0.1]),
            "generalisation": np.array([0.1, -0.1, 0.3, 0.0]),
        },
        absent={"offline": np.array([False, False, False, True])},
        known=np.ones(4, dtype=np.bool_),
    )
    verdict = explain(moment, client=2).verdict
    assert verdict == (
        "Client 2 was not chosen: its score 0.5 (mean_speed 0.2 + confidence_bonus 0.3) is rank 3 "
        "of 3, its generalisation 0.3 rank 1. In place of client 1, where it would cost least, the "
        "cohort would be worth 0.5 + 0.2 = 0.7 instead of 0.8 + 0 = 0.8."
    )
    assert explain(moment, client=3).verdict == "Client 3 could not be chosen: it was offline."
    told = explain(moment, client=0)
    assert told.lines[0] == "Round 9: 2 chosen of 3 that were available, of 4 clients (1 offline)."
    assert told.tables[0].rows[0] == ("client 0", "0.9", "0.6", "0.3", "0.1")
    assert told.tables[1].rows == (("client 2", "0.5", "0.2", "0.3", "0.3"),)
    assert told.tables[2].rows[0][:4] == ("score", "0.9", "1 of 3", "0.8 … 0.9")


def _unseen_and_busy(policy: Policy[Any], **terms: FloatArray) -> Moment:
    """Client 1 was never tried, 3 is busy."""
    return Moment(
        rule=rule_of(policy),
        meaning=policy.terms,
        label=policy.name,
        round=2,
        cohort=np.array([0, 1]),
        available=np.array([True, True, True, False]),
        terms=terms,
        absent={"busy": np.array([False, False, False, True])},
        known=np.ones(4, dtype=np.bool_),
    )


@pytest.mark.parametrize("policy", [BSFL(), CSUCB(), Lifted(policy=CSUCB())])
def test_who_was_never_tried_has_an_infinite_score_in_the_tables(policy: Policy[Any]) -> None:
    score = np.array([0.9, np.nan, 0.5, 0.7])
    moment = _unseen_and_busy(
        policy,
        score=score,
        mean_speed=score,
        mean_reward=score,
        confidence_bonus=score,
        generalisation=np.zeros(4),
    )
    told = explain(moment, client=1)
    assert {row[0]: row[1] for row in told.tables[0].rows} == {"client 1": "∞", "client 0": "0.9"}
    assert told.tables[2].rows[0][:4] == ("score", "∞", "1 of 3", "0.9 … ∞")
    assert told.tables[2].rows[1][:2] != ("score", "∞")
    other = explain(moment, client=2).tables[2].rows[0]
    assert other[:3] == ("score", "0.5", "3 of 3")


def test_who_was_not_available_has_no_rank() -> None:
    score = np.array([0.9, 0.8, 0.5, 0.7])
    terms = {"score": score, "mean_reward": score, "confidence_bonus": score}
    told = explain(_unseen_and_busy(CSUCB(), **terms), client=3)
    assert {row[2] for row in told.tables[2].rows} == {"–"}
    assert told.tables[2].rows[0][1] == "0.7"
    assert told.verdict == ("Client 3 could not be chosen: it is still busy with an earlier round.")


def test_ties_are_told_as_luck() -> None:
    policy = CSUCB()
    moment = _moment(policy, 1, _played(policy, rounds=1)[0])
    there, chosen = moment.num_available, len(moment.cohort)
    for client in np.flatnonzero(moment.available).tolist():
        verdict = explain(moment, client=client).verdict
        assert verdict is not None
        assert f"{there} clients are alike in that, of whom chance took {chosen}" in verdict


def test_the_tier_that_was_drawn_is_found() -> None:
    """It is one of those in whose order, filled up tier by tier, the cohort can come about.

    And it is right: the policy's own draw is the first of its stream.
    """
    policy = TiFL(num_tiers=3, interval=1000)
    single = found = 0
    for number, played in enumerate(_played(policy, rounds=60), start=1):
        moment = _moment(policy, number, played)
        tier, cohort = moment.column("tier"), moment.cohort
        if np.isnan(tier).any() or len(cohort) == 0:
            continue

        def possible(order: list[int], tier: FloatArray = tier, played: Round = played) -> bool:
            place = np.array([order.index(int(number)) for number in tier])
            missed = np.setdiff1d(np.flatnonzero(played[0]), played[1])
            return bool(place[played[1]].max() <= place[missed].min(initial=len(order)))

        orders = {0: [0, 1, 2], 1: [1, 0, 2], 2: [2, 1, 0]}  # of two as near the faster first
        fitting = ByTier(policy=policy).fitting(moment)
        assert set(fitting) == {drawn for drawn, order in orders.items() if possible(order)}
        assert int(stream(3, POLICY, number).choice(3, p=np.full(3, 1 / 3))) in fitting
        found += 1
        single += len(fitting) == 1
    assert found > 30
    assert single > 10


def test_swaps_are_worth_what_the_swapped_set_is() -> None:
    policy = PAUSE(alpha=3.0, gamma=2.0, rho=0.4)
    for number, played in enumerate(_played(policy, clusters=np.arange(K) % 3), start=1):
        moment = _moment(policy, number, played)
        rule = rule_that_can_be_told(moment)
        assert isinstance(rule, BestSet)
        swaps, others = Swaps(rule, moment), moment.passed_over
        for out in moment.cohort.tolist():
            for into, value in zip(others, swaps.values(out, others), strict=True):
                swapped = np.append(moment.cohort[moment.cohort != out], into)
                slowest, rest = swaps.instance.parts(swapped)
                finite = slowest if np.isfinite(slowest) else 1e12
                assert value == pytest.approx(finite + rest, rel=1e-12)


class TestAtEdges:
    NETWORK = EdgeView(
        coverage=np.array([[True, False], [True, True], [False, True], [True, True]]),
        cost=np.array([1.0, 2.0, 1.0, 9.0]),
        budget=np.array([3.0, 2.5]),
    )

    def told(self, policy: Policy[Any]) -> dict[str, FloatArray]:
        problem = Problem(num_clients=4, cohort_size=4, num_edges=2, num_features=1)
        selector = Selector(policy, problem, seed=1)
        context = np.full((4, 2, 1), 0.5)
        for round_ in (1, 2, 3):
            clients = selector.select(edges=self.NETWORK, features=context).clients
            selector.observe(
                Feedback(round=round_, clients=clients, latency_seconds=np.ones(len(clients)))
            )
        selector.select(edges=self.NETWORK, features=context)
        return selector.scores()

    def test_costs_are_told_where_clients_are_covered(self) -> None:
        for policy in (COCS(), LinUCB(), CUCB(), Random()):
            terms = self.told(policy)
            np.testing.assert_array_equal(terms["cost[0]"], [1.0, 2.0, np.nan, 9.0])
            np.testing.assert_array_equal(terms["cost[1]"], [np.nan, 2.0, 1.0, 9.0])

    def test_cocs_counts_against_its_control_function(self) -> None:
        terms = self.told(COCS())
        control = 4**0.4 * np.log(4)
        assert terms["needed[0]"][0] == pytest.approx(control)
        np.testing.assert_array_equal(terms["counter[0]"], terms["count[0]"])
        assert terms["counter[0]"][0] == 3  # cheap enough for every round

    def test_linucb_adds_up(self) -> None:
        terms = self.told(LinUCB())
        index = np.stack(
            [terms[f"expected[{e}]"] + terms[f"confidence_bonus[{e}]"] for e in (0, 1)]
        )
        np.testing.assert_allclose(np.nanmax(index, axis=0), terms["score"])

    def test_cucb_tells_turns(self) -> None:
        terms = self.told(CUCB())
        # Client 3 costs more than any budget: it has no turn. Clients 0 and 2 have one pair each.
        assert np.isnan(terms["turn"][3])
        assert sorted(terms["turn"][:3].tolist())[0] == 1.0
        assert (terms["arm"] == terms["arm"][0]).all()


FLAT = {
    "name": "bsfl-groups",
    "num_clients": 10,
    "cohort_size": 3,
    "availability": {"name": "bernoulli", "probability": 0.8},
    "dropout": 0.1,
    "deadline_seconds": 2.0,
}
EDGES = {"name": "edge-network", "num_clients": 12, "num_edges": 2}
DIGITS = {"data": {"name": "digits"}, "model": {"name": "logistic"}}


def _cases() -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = {
        name: {"world": FLAT, "policy": [{"name": name}]} for name in POLICIES
    }
    for name, kind in POLICIES.items():
        if getattr(kind, "assigns_edges", False):
            cases[f"{name} at edges"] = {"world": EDGES, "policy": [{"name": name}]}
        else:
            lifted = {"name": "lifted", "policy": {"name": name}}
            cases[f"{name} lifted"] = {"world": EDGES, "policy": [lifted]}
    asks = {"name": "power-of-choice", "variant": "pow-d", "num_candidates": 5}
    cases["asks for losses"] = {"world": FLAT, "policy": [asks], "training": DIGITS}
    cases["trains, with privacy"] = {
        "world": FLAT,
        "policy": [{"name": "pause"}],
        "training": DIGITS,
        "privacy": {"epsilon": 1.0, "schedule": {"name": "uniform", "participations": 2}},
    }
    cases["by data"] = {"world": FLAT, "policy": [{"name": "random", "by_data": True}]}
    small = {"name": "naive-mab-cs", "request_fraction": 0.4}
    cases["asks some for their times"] = {"world": FLAT, "policy": [small]}
    return cases


@pytest.mark.filterwarnings("ignore::fedmuster.core.errors.FedmusterWarning")  # linucb
@pytest.mark.parametrize("case", _cases())
def test_every_policy_explains_itself(case: str, tmp_path: Path) -> None:
    experiment = Experiment.from_table({"rounds": 6, "regret": False, **_cases()[case]})
    # Also those that were published without rounds.
    in_rounds = {label: Federation(rounds=True) for label in experiment.policies}
    prepare(tmp_path, replace(experiment, federations=in_rounds))
    execute(tmp_path)
    cell = find_run(tmp_path)
    for round_ in (1, 6):
        moment = from_replay(cell, Point(round_), play_again(tmp_path, round_))
        rule = rule_that_can_be_told(moment)
        assert not isinstance(rule, Untold), "all that it needs is there"
        assert rule.about(moment)
        for client in range(moment.num_clients):
            told = explain(moment, client=client)
            assert told.verdict is not None
            assert told.verdict.startswith(f"Client {client} ")
            assert ("was chosen" in told.verdict) == moment.chose(client)
            assert ("could not be chosen" in told.verdict) == (not moment.available[client])
            assert "nan" not in f"{told}".lower().replace("finance", "")
            exact = "lifted" not in case and "some" not in case
            assert not (exact and "is more: the solver" in told.verdict), told.verdict


def test_why_somebody_was_not_available(tmp_path: Path) -> None:
    """Privacy spent, busy with an earlier round, offline: of several reasons the first."""
    world = {**FLAT, "dropout": 0.0, "deadline_seconds": 0.4}
    experiment = Experiment.from_table(
        {
            "rounds": 8,
            "world": world,
            "policy": [{"name": "refl"}],
            "training": DIGITS,
            "privacy": {"epsilon": 1.0, "schedule": {"name": "uniform", "participations": 2}},
        }
    )
    prepare(tmp_path, experiment)
    execute(tmp_path)
    cell, told = find_run(tmp_path), []
    for round_ in range(1, rounds_done(tmp_path) + 1):
        moment = from_replay(cell, Point(round_), play_again(tmp_path, round_))
        away = np.flatnonzero(~moment.available).tolist()
        told += [explain(moment, client=client).verdict for client in away]
    for reason in ("too little privacy left", "still busy with an earlier round", "was offline"):
        assert any(reason in str(verdict) for verdict in told), reason
