"""Which rule each policy of the registry follows."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from fedmuster.core.policy import Policy
from fedmuster.policies import (
    BSFL,
    COCS,
    CSUCB,
    CSUCBQ,
    CUCB,
    PAUSE,
    RBCSF,
    REFL,
    SAFA,
    AllClients,
    ClusteredSampling,
    ElementWiseMABCS,
    ExtendedFedCS,
    FastestInExpectation,
    FedCS,
    FedSUV,
    Genie,
    Lifted,
    LinUCB,
    NaiveMABCS,
    Oort,
    Oracle,
    PowerOfChoice,
    Random,
    TiFL,
)
from fedmuster.report.explain.arms import PlayedArm
from fedmuster.report.explain.bottleneck import BestSet
from fedmuster.report.explain.candidates import UncertainAndUseful
from fedmuster.report.explain.draws import ByChance, random_rule
from fedmuster.report.explain.everyone import Everyone, Untold
from fedmuster.report.explain.guided import Guided
from fedmuster.report.explain.lifted import Placed
from fedmuster.report.explain.moment import Moment
from fedmuster.report.explain.placements import BestPlacement, optimistic, under_explored
from fedmuster.report.explain.ranking import Highest
from fedmuster.report.explain.rule import Rule
from fedmuster.report.explain.schedules import ShortSchedule, drawn_words
from fedmuster.report.explain.tiers import ByTier
from fedmuster.report.explain.words import percent, several
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.brute_force import BruteForce


def rule_of(policy: Policy[Any]) -> Rule:
    """How ``policy`` chooses; of one that the registry does not know: by its score, if any."""
    make = _RULES.get(type(policy))
    return _BY_SCORE if make is None else make(policy)


def rule_for(moment: Moment) -> Rule:
    """The rule of its policy, or that nothing can be said where terms are missing."""
    rule = rule_of(moment.policy)
    if not rule.needs:
        return rule
    missing = tuple(name for name in rule.needs if name not in moment.term_names)
    if missing:
        return Untold() if missing == ("score",) else Untold(missing=missing)
    return rule if moment.complete else Untold(partly=True)


_BY_SCORE: Final = Highest(term="score", formula="the highest scores are taken")


def _bandit(policy: BSFL | PAUSE) -> Rule:
    weights: tuple[str, ...] = ("generalisation",)
    penalty = 0.0
    if isinstance(policy, PAUSE):
        weights += ("privacy",) * (policy.gamma > 0)
        penalty = policy.alpha * policy.rho
    return BestSet(
        formula="of all cohorts of this size the one with the largest sum of its lowest score "
        f"(score = mean_speed + confidence_bonus) and its mean {' + '.join(weights)}",
        slowest="score",
        parts=(("mean_speed", 1.0), ("confidence_bonus", 1.0)),
        weights=weights,
        penalty=penalty,
        exact=isinstance(policy.solver, Exact | BruteForce),
    )


def _genie(policy: Genie) -> Rule:
    weights = ("generalisation", "privacy") if policy.gamma > 0 else ("generalisation",)
    return BestSet(
        formula="of all cohorts the one with the largest sum of its lowest true_speed and its mean "
        f"{' + '.join(weights)}",
        slowest="true_speed",
        weights=weights,
        penalty=policy.alpha * policy.rho,
    )


def _rbcs_f(policy: RBCSF) -> Rule:
    return BestSet(
        formula=f"of all cohorts the one with the smallest {policy.patience:g} · (longest "
        "latency_seconds) - (sum of owed_rounds), where latency_seconds = expected_seconds - "
        "bonus_seconds, at least 0",
        slowest="latency_seconds",
        parts=(("expected_seconds", 1.0), ("bonus_seconds", -1.0)),
        weights=("owed_rounds",),
        scale=-policy.patience,
        times_size=True,
        exact=isinstance(policy.solver, Exact | BruteForce),
    )


def _cs_ucb_q(policy: CSUCBQ) -> Rule:
    b = policy.queue_weight
    return Highest(
        term="score",
        formula=f"the highest score = {1 - b:g} · optimistic_reward + {b:g} · owed_rounds",
        parts=(("optimistic_reward", 1 - b), ("owed_rounds", b)),
        unseen=None,
    )


def _power_of_choice(policy: PowerOfChoice) -> Rule:
    def drawn(moment: Moment) -> str | None:
        count = max(policy.num_candidates or moment.num_available, len(moment.cohort))
        if count >= moment.num_available:
            return None
        return (
            f"only {several(count, 'candidate')} are looked at, drawn by their data (a chance of "
            f"about {percent(count / moment.num_available)})"
        )

    reported = policy.variant == "rpow-d"
    return Highest(
        term="score" if reported else "asked_loss",
        formula=f"the highest losses, {'as last reported' if reported else 'asked for'}",
        unseen="it never reported a loss, and such clients come first" if reported else None,
        drawn=drawn,
    )


def _schedule(policy: FedCS | ExtendedFedCS) -> Rule:
    return ShortSchedule(
        formula="one after the other the client that prolongs the round least, by "
        "mean_update_seconds and mean_upload_seconds",
        update="mean_update_seconds",
        upload="mean_upload_seconds",
        unseen_first=False,
        unit="s",
        request_fraction=policy.request_fraction,
    )


def _element_wise(policy: ElementWiseMABCS) -> Rule:
    return ShortSchedule(
        formula="one after the other the client that prolongs the round least, by times that are "
        "the shorter, the less is known of them (optimistic_update, optimistic_upload)",
        update="optimistic_update",
        upload="optimistic_upload",
        unseen_first=True,
        unit="units",
        request_fraction=policy.request_fraction,
    )


def _naive(policy: NaiveMABCS) -> Rule:
    return Highest(
        term="score",
        formula="the highest score = time_term + confidence_bonus",
        parts=(("time_term", 1.0), ("confidence_bonus", 1.0)),
        drawn=lambda moment: drawn_words(moment, policy.request_fraction),
    )


def _lifted(policy: Lifted) -> Rule:
    return Placed(flat=rule_of(policy.policy))


def _always(rule: Rule) -> Callable[[Any], Rule]:
    return lambda _: rule


_RULES: Final[dict[type, Callable[[Any], Rule]]] = {
    BSFL: _bandit,
    PAUSE: _bandit,
    Genie: _genie,
    RBCSF: _rbcs_f,
    CSUCB: _always(
        Highest(
            term="score",
            formula="the highest score = mean_reward + confidence_bonus",
            parts=(("mean_reward", 1.0), ("confidence_bonus", 1.0)),
        )
    ),
    CSUCBQ: _cs_ucb_q,
    PowerOfChoice: _power_of_choice,
    FedCS: _schedule,
    ExtendedFedCS: _schedule,
    ElementWiseMABCS: _element_wise,
    NaiveMABCS: _naive,
    FedSUV: _always(UncertainAndUseful()),
    Oort: lambda policy: Guided(policy=policy),
    TiFL: lambda policy: ByTier(policy=policy),
    REFL: _always(
        Highest(
            term="priority",
            formula="the highest priority: those first who are about to leave, those last who rest",
        )
    ),
    SAFA: _always(Everyone(formula="everybody who is available trains", term="preferred")),
    AllClients: _always(Everyone(formula="everybody who is available is asked")),
    ClusteredSampling: _always(
        ByChance(
            formula="one client from each of m distributions, which hold every client by its data",
            term="chance",
            exact=True,
        )
    ),
    Random: random_rule,
    FastestInExpectation: _always(
        Highest(term="true_mean_seconds", formula="the shortest true mean latencies", lowest=True)
    ),
    COCS: _always(
        BestPlacement(
            formula="under-explored pairs of client and edge first (counter <= needed), then the "
            "largest sum of probability, within budgets",
            terms=("probability", "counter", "needed"),
            value=partial(Moment.at_edges, name="probability"),
            first=under_explored,
        )
    ),
    LinUCB: _always(
        BestPlacement(
            formula="the placement with the largest sum of expected + confidence_bonus, at least 0 "
            "each, within budgets",
            terms=("expected", "confidence_bonus"),
            value=optimistic,
        )
    ),
    Oracle: _always(
        BestPlacement(
            formula="the placement with the largest sum of true_value, within budgets",
            terms=("true_value",),
            value=partial(Moment.at_edges, name="true_value"),
        )
    ),
    CUCB: _always(PlayedArm()),
    Lifted: _lifted,
}
