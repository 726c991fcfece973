import numpy as np
import pytest

from fedmuster.bandits.linear import LinearModel, LinearState, learn, predict, ridge
from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.state import grow


def test_against_the_normal_equations() -> None:
    rng = np.random.default_rng(5)
    clients, dimension, regularisation = 6, 3, 0.7
    state = ridge(clients, dimension, regularisation)
    history: list[list[tuple[np.ndarray, float]]] = [[] for _ in range(clients)]
    for _ in range(40):
        chosen = np.sort(rng.choice(clients, 3, replace=False))
        context, values = rng.normal(size=(3, dimension)), rng.normal(size=3)
        learn(state, chosen, context, values)
        for row, client in enumerate(chosen):
            history[client].append((context[row], values[row]))
    context = rng.normal(size=(clients, dimension))
    prediction, width = predict(state, slice(None), context)
    for client in range(clients):
        seen = np.array([c for c, _ in history[client]]).reshape(-1, dimension)
        precision = regularisation * np.eye(dimension) + seen.T @ seen
        theta = np.linalg.solve(precision, seen.T @ np.array([y for _, y in history[client]]))
        expected_width = np.sqrt(context[client] @ np.linalg.inv(precision) @ context[client])
        np.testing.assert_allclose(prediction[client], context[client] @ theta)
        np.testing.assert_allclose(width[client], expected_width)


def observed(
    model: LinearModel, state: LinearState, num_clients: int
) -> tuple[np.ndarray, np.ndarray]:
    """Clients and values of 30 rounds, one by one, as ``model`` saw them."""
    rng = np.random.default_rng(6)
    clients = [rng.permutation(num_clients)[:3] for _ in range(30)]
    values = [rng.normal(size=3) for _ in clients]
    for chosen, value in zip(clients, values, strict=True):
        model.observe(state, chosen, value)
    return np.concatenate(clients), np.concatenate(values)


def normal_equations(
    design: np.ndarray, clients: np.ndarray, values: np.ndarray, regularisation: float
) -> tuple[np.ndarray, np.ndarray]:
    rows = design[clients]
    precision = regularisation * np.eye(design.shape[1]) + rows.T @ rows
    theta = np.linalg.solve(precision, rows.T @ values)
    width = np.sqrt(np.einsum("ni,ni->n", design, np.linalg.solve(precision, design.T).T))
    return design @ theta, width


def test_one_model_for_all_against_the_normal_equations() -> None:
    attributes = np.random.default_rng(7).normal(size=(9, 2)) * [1.0, 1e9]
    model = LinearModel(regularisation=0.7)
    state = model.init(9, attributes)
    history = observed(model, state, 9)
    scaled = (attributes - attributes.mean(axis=0)) / attributes.std(axis=0)
    design = np.column_stack([np.ones(9), scaled])
    np.testing.assert_allclose(model.predict(state), normal_equations(design, *history, 0.7))


def test_without_attributes_each_client_has_its_own_coordinate() -> None:
    model = LinearModel(regularisation=0.7)
    state = model.init(9, None)
    history = observed(model, state, 9)
    np.testing.assert_allclose(model.predict(state), normal_equations(np.eye(9), *history, 0.7))


def test_nothing_observed_predicts_nothing() -> None:
    model = LinearModel(regularisation=4.0)
    attributes = np.array([[0.0, 1.0], [0.0, 3.0]])
    prediction, width = model.predict(model.init(2, attributes))
    np.testing.assert_array_equal(prediction, np.zeros(2))
    np.testing.assert_allclose(width, np.full(2, np.sqrt((1.0 + 1.0) / 4.0)))


@pytest.mark.parametrize("known", [True, False])
def test_clients_who_join_may_change_the_standardisation(known: bool) -> None:
    attributes = np.random.default_rng(8).normal(size=(12, 2)) * np.arange(1, 13)[:, None]
    model = LinearModel()
    old = model.init(9, attributes[:9] if known else None)
    fresh = model.init(12, attributes if known else None)
    always = model.init(12, attributes if known else None)
    observed(model, old, 9)
    observed(model, always, 9)
    np.testing.assert_allclose(model.predict(grow(old, fresh)), model.predict(always))


def test_the_configuration_is_checked() -> None:
    assert from_table(LinearModel, to_table(LinearModel())) == LinearModel()
    with pytest.raises(ConfigError, match="regularisation"):
        LinearModel(regularisation=0.0)
