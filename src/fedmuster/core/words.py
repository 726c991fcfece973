"""How numbers and terms are told to people."""

import math
from typing import Final

MEANING: Final = {
    "score": "the index that the policy chooses by",
    "times_asked": "rounds in which it was chosen before",
    "mean_speed": "mean of (shortest latency) / latency so far; no answer counts as 0",
    "confidence_bonus": "how much better it may be: larger, the less often it was tried",
    "generalisation": "alpha g: positive if its data were used less than their share",
    "privacy": "gamma p: p is the share of its privacy budget that is left",
    "cluster": "clients of one cluster count less together",
    "true_speed": "the true expected speed, which only oracles know",
    "true_mean_seconds": "the true mean latency, which only oracles know",
    "true_value": "what it is truly worth, which only oracles know",
    "mean_reward": "mean of 1 - latency / (longest latency); no answer counts as 0",
    "optimistic_reward": "mean reward and bonus, at most 1",
    "owed_rounds": "its queue: rounds that it is owed by the fairness guarantee",
    "latency_seconds": "expected latency less what it may be shorter, at least 0",
    "expected_seconds": "what its regression expects in this context",
    "bonus_seconds": "alpha times the width of the confidence interval",
    "time_term": "minus the mean seconds it prolonged rounds by, over alpha",
    "mean_added_seconds": "by how much it prolonged the rounds it took part in",
    "optimistic_update": "mean update time over beta, less the bonus",
    "optimistic_upload": "mean upload time over beta, less the bonus",
    "mean_update_seconds": "how long it takes to train",
    "mean_upload_seconds": "how long it takes to upload",
    "statistical_utility": "|B| sqrt(mean loss²) when it last trained, clipped, from 0 to 1",
    "staleness_bonus": "sqrt(0.1 ln t / L): larger, the longer ago it last trained",
    "speed_factor": "(T / D)^alpha if it is slower than the pacer prefers, else 1",
    "utility": "|B| sqrt(mean loss²) when it last trained",
    "duration_seconds": "how long it took then",
    "exploration_share": "its share in the expected speeds of those never tried",
    "asked_loss": "the loss of the global model on its data, as it answered",
    "validity_low": "the chance that it answers in time is at least this",
    "validity_high": "… and at most this",
    "utility_low": "what its answer is worth is at least this",
    "utility_high": "… and at most this",
    "diagonal": "how much is left to learn of it",
    "left_round": "since when it is no candidate any more",
    "left_by": "why: 1 another is surely more valid, 2 another surely dominates it",
    "priority": "3 rested and about to leave, 2 rested, 1 and 0 the same while it rests",
    "rested": "whether it has not taken part for long enough",
    "leaving": "whether it expects to be gone in the next window",
    "rounds_since": "rounds since it last took part",
    "preferred": "1 if it was not picked in the last round: the round waits for it",
    "mean_seconds": "its mean latency",
    "tier": "0 is the fastest",
    "tier_probability": "how likely its tier was to be drawn",
    "tier_credits": "how often its tier may still be drawn",
    "accuracy": "of the global model on its data, as it last said",
    "chance": "how likely it was to be chosen",
    "data_share": "its share of the data of all who are available",
    "probability": "p, the share of its answers that came in time in such a context",
    "count": "C, how many observations that is the share of",
    "counter": "how often it was observed in such a context",
    "needed": "K(t): with no more observations than this it is under-explored",
    "cost": "what it costs there",
    "expected": "what the regression expects of its context",
    "arm": "which of the fixed decisions is played",
    "arm_mean": "how good that decision was so far, from 0 to 1",
    "arm_bonus": "how much better it may be",
    "arm_played": "how often it was played",
    "turn": "when it is the client's turn in the order of that decision",
}

_NOTHING = 1e-12
"""Below this a number is a rounding error, or the tiniest one that keeps a quotient defined."""


def number(value: float) -> str:
    """Short, and exact if it is whole; – for nothing.

    Example:
        >>> number(3.0), number(0.123456), number(float("nan")), number(float("inf"))
        ('3', '0.1235', '–', '∞')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) < _NOTHING:
        return "0"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}"


def percent(share: float) -> str:
    """Of a chance.

    Example:
        >>> percent(0.25), percent(0.0123)
        ('25 %', '1.2 %')
    """
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def ordinal(position: int) -> str:
    """1st, 2nd, 3rd, …

    Example:
        >>> [ordinal(n) for n in (1, 2, 11, 23)]
        ['1st', '2nd', '11th', '23rd']
    """
    last = {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
    return f"{position:,}{'th' if position % 100 in (11, 12, 13) else last}"


def several(count: int, what: str) -> str:
    """With a plural s.

    Example:
        >>> several(1, "client"), several(1200, "client")
        ('1 client', '1,200 clients')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def capital(sentence: str) -> str:
    """With a capital letter first."""
    return sentence[:1].upper() + sentence[1:]
