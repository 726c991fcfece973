"""Who leaves, by hand: Eq. 7, dominance, their floors, and ties."""

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.policies.fedsuv.candidates import (
    DOMINATED,
    ELIMINATED,
    BoxState,
    CandidateState,
    Interval,
    drop_dominated,
    eliminate,
    everyone,
)


def intervals(*bounds: tuple[float, float]) -> Interval:
    low, high = np.array(bounds, dtype=np.float64).T
    return low, high


def boxes(*corners: tuple[float, float, float, float]) -> BoxState:
    """(validity low, high, utility low, high) of each client."""
    validity_low, validity_high, utility_low, utility_high = np.array(corners, dtype=np.float64).T
    return BoxState(
        validity_low=validity_low,
        validity_high=validity_high,
        utility_low=utility_low,
        utility_high=utility_high,
        utility_scale=np.array(1.0),
    )


def remaining(state: CandidateState) -> list[int]:
    return [int(client) for client in state.remaining()]


def test_eliminates_whose_upper_validity_is_below_the_best_lower_one() -> None:
    state = everyone(5)
    # The best lower bound is 0.6: clients 1 (0.5) and 2 (0.6, as good as it) cannot exceed it.
    validity = intervals((0.6, 0.9), (0.1, 0.5), (0.2, 0.6), (0.5, 0.61), (-2.0, 3.0))
    eliminate(state, validity, round_=4, floor=1)  # Eq. 7
    assert remaining(state) == [0, 3, 4]
    assert state.left_round.tolist() == [0, 4, 4, 0, 0]
    assert state.left_by.tolist() == [0, ELIMINATED, ELIMINATED, 0, 0]


def test_the_best_lower_bound_is_that_of_a_candidate() -> None:
    state = everyone(3)
    eliminate(state, intervals((0.9, 1.0), (0.0, 0.5), (0.4, 0.6)), round_=1, floor=1)
    assert remaining(state) == [0]
    state = everyone(3)
    state.left_by[0] = DOMINATED
    eliminate(state, intervals((0.9, 1.0), (0.0, 0.5), (0.4, 0.6)), round_=1, floor=1)
    assert remaining(state) == [1, 2]  # who has left is no measure any more


def test_elimination_stops_at_its_floor_with_the_most_hopeless_gone() -> None:
    state = everyone(6)
    validity = intervals((0.9, 1.0), (0.0, 0.5), (0.0, 0.2), (0.1, 0.4), (0.0, 0.3), (0.8, 1.0))
    eliminate(state, validity, round_=2, floor=4)
    assert remaining(state) == [0, 1, 3, 5]
    eliminate(state, validity, round_=3, floor=4)
    assert remaining(state) == [0, 1, 3, 5]
    eliminate(state, validity, round_=4, floor=5)  # somebody joined: fewer are left than may be
    assert remaining(state) == [0, 1, 3, 5]


def test_those_tied_at_a_floor_all_stay() -> None:
    state = everyone(5)
    validity = intervals((0.9, 1.0), (0.0, 0.3), (0.1, 0.3), (0.0, 0.1), (0.2, 0.3))
    eliminate(state, validity, round_=2, floor=2)  # three may leave
    assert remaining(state) == [0, 1, 2, 4]


def test_without_uncertainty_the_best_stay() -> None:
    state = everyone(3)
    eliminate(state, intervals((0.5, 0.5), (0.5, 0.5), (0.2, 0.2)), round_=1, floor=1)
    assert remaining(state) == [0, 1]
    state = everyone(2)
    eliminate(state, intervals((0.5, 0.5), (0.0, 0.9)), round_=1, floor=1)
    assert remaining(state) == [0, 1]  # nobody is below itself


def test_drops_whom_another_dominates() -> None:
    state = everyone(4)
    state.left_by[3] = ELIMINATED  # and so dominates nobody
    drop_dominated(
        state,
        boxes(
            (0.5, 0.9, 0.5, 0.9), (0.0, 0.5, 0.0, 0.5), (0.0, 0.6, 0.0, 0.4), (0.9, 1.0, 0.9, 1.0)
        ),
        round_=7,
        floor=1,
    )
    assert remaining(state) == [0, 2]
    assert state.left_round[1] == 7
    assert state.left_by[1] == DOMINATED


def test_dominated_clients_of_the_highest_upper_utility_fill_the_cohort() -> None:
    state = everyone(4)
    corners = boxes(
        (0.8, 0.9, 0.8, 0.9), (0.0, 0.1, 0.0, 0.2), (0.0, 0.1, 0.0, 0.4), (0.0, 0.1, 0.0, 0.3)
    )
    drop_dominated(state, corners, round_=7, floor=2)
    assert remaining(state) == [0, 2]


def test_reports_tell_when_and_why() -> None:
    state = everyone(2)
    state.left_round[1], state.left_by[1] = 9, DOMINATED
    columns: dict[str, FloatArray] = state.columns()
    np.testing.assert_array_equal(columns["left_round"], [np.nan, 9.0])
    np.testing.assert_array_equal(columns["left_by"], [0.0, 2.0])
