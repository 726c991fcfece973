import numpy as np

from fedmuster.estimators.linear import learn, predict, ridge


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
