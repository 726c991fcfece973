"""Play a policy through ``Selector``, as an own server would: newcomers, gaps, save and restore."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.digests.digesting import Digests, digest, opened, without_liveness

ROUNDS = 16
CLIENTS = 12
NEWCOMERS = 3
JOIN_BEFORE = 6
RESTORE_BEFORE = 11


def select_by(policy_name: str, folder: Path) -> Digests:
    """Who is chosen, the scores, and the state in the end."""
    from fedmuster import POLICIES, Problem, Selector

    policy: Any = POLICIES[policy_name]()
    problem = Problem(cohort_size=4, num_features=2, num_clients=CLIENTS, **_described(CLIENTS))
    selector: Any = Selector(policy, problem, seed=5, newcomer_quota=1.0)
    cohorts, scores = [], []
    for number in range(1, ROUNDS + 1):
        if number == JOIN_BEFORE:
            selector.join(NEWCOMERS, **_described(NEWCOMERS))
        if number == RESTORE_BEFORE:
            selector.save(folder / "selector.npz")
            selector = Selector.restore(folder / "selector.npz", policy)
        selection = selector.select(**_seen(number, selector.problem.num_clients, policy.oracle))
        cohorts.append(selection.clients)
        scores.append(selector.scores())
        selector.observe(_feedback(number, selection.clients))
    selector.save(folder / "selector.npz")
    image = (folder / "selector.npz").read_bytes()
    parts = {"cohorts": cohorts, "scores": scores, **without_liveness(opened(image))}
    return {name: digest(content) for name, content in parts.items()}


def _described(count: int) -> dict[str, Any]:
    place = np.arange(count)
    return {
        "num_samples": 20 + place * 7 % 30,
        "quality": 0.5 + place * 3 % 8 / 16,
        "attributes": np.stack([place % 5 / 4, place * 2 % 7 / 8, place % 3 / 2], axis=1),
        "expected_seconds": 0.5 + place * 5 % 9 / 4,
    }


def _seen(number: int, count: int, oracle: bool) -> dict[str, Any]:
    """What the server knows in a round: everything that a policy may ask for."""
    from fedmuster import Truth

    place = np.arange(count)
    slow = np.asarray(place % 6, dtype=np.float64)
    truth = Truth(mean_latency_seconds=0.5 + slow, mean_speed=0.25 / (0.5 + slow))
    return {
        "available": (place + number) % 5 != 0,
        "features": np.stack([(place * number) % 7 / 8, (place + number) % 4 / 4], axis=1),
        "privacy_left": 1.0 - (place * number) % 9 / 16,
        "ask_loss": lambda clients, batch_size=None: 1.0 + clients * 5 % 11 / 8,
        "truth": truth if oracle else None,
    }


def _feedback(number: int, clients: NDArray[Any]) -> Any:
    """Some do not complete, one row is missing in every third round, and one round has none."""
    from fedmuster import Feedback

    told = clients[: -1 if number % 3 == 0 else None] if number != 4 else clients[:0]
    seconds = 0.25 + (told * 7 + number * 3) % 13 / 4
    return Feedback(
        round=number,
        clients=told,
        latency_seconds=seconds,
        completed=(told * 3 + number) % 7 != 0,
        signals={"loss": 0.5 + (told + number) % 9 / 8, "accuracy_gain": told % 4 / 16},
        round_seconds=float(seconds.max(initial=math.ulp(1.0))),
    )
