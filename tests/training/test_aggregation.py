"""Servers against values worked by hand and against plain loops over clients and coordinates."""

import tomllib
from dataclasses import dataclass, field
from math import copysign, sqrt
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import stats

from fedmuster.core import arrays as blocks
from fedmuster.core.config import from_table, named, to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.state import from_bytes, load_arrays, to_arrays, to_bytes
from fedmuster.training.aggregation import (
    SERVERS,
    Aggregation,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedMean,
    FedYogi,
    ModelMixing,
    finite_rows,
)
from fedmuster.training.combine import (
    CoordinateMedian,
    TrimmedMean,
    UniformMean,
    WeightedMean,
    clip_factors,
)
from fedmuster.training.training_records import Updates

Vector = NDArray[np.float32]


def updates(*deltas: list[float], **signals: list[float]) -> Updates:
    rows = np.array(deltas, dtype=np.float32)
    return Updates(
        clients=np.arange(len(rows)),
        deltas=rows,
        signals={name: np.array(values) for name, values in signals.items()},
    )


def random_updates(seed: int, clients: int, length: int) -> Updates:
    deltas = np.random.default_rng(seed).normal(size=(clients, length)).astype(np.float32)
    return Updates(clients=np.arange(clients), deltas=deltas, signals={})


def applied(
    server: Aggregation,
    *rounds: Updates,
    start: float = 0.0,
    weights: list[float] | None = None,
    trainable: int | None = None,
) -> list[Vector]:
    """The models after each of the rounds."""
    length = rounds[0].deltas.shape[1]
    model, models = np.full(length, start, dtype=np.float32), []
    state = server.init(length)
    for sent in rounds:
        data = np.ones(len(sent.clients)) if weights is None else np.array(weights)
        model = server.apply(state, model, sent, data, length if trainable is None else trainable)
        models.append(model)
    return models


TWO = updates([1.0, -2.0, 0.0], [5.0, 2.0, 8.0])


class TestCombiningRules:
    def test_means_by_hand(self) -> None:
        data = np.array([1.0, 3.0])
        assert WeightedMean().combine(TWO.deltas, data).tolist() == [4.0, 1.0, 6.0]
        assert UniformMean().combine(TWO.deltas, data).tolist() == [3.0, 0.0, 4.0]

    @pytest.mark.parametrize("count", [1, 2, 7, 8])
    def test_median_is_numpys(self, count: int) -> None:
        deltas = random_updates(1, count, 50).deltas
        median = CoordinateMedian().combine(deltas, np.ones(count))
        assert_array_equal(median, np.median(deltas, axis=0))

    @pytest.mark.parametrize("count", [1, 2, 9, 10, 25])
    @pytest.mark.parametrize("trim", [0.0, 0.1, 0.2, 0.45])
    def test_trimmed_mean_is_scipys(self, count: int, trim: float) -> None:
        deltas = random_updates(2, count, 50).deltas
        mean = TrimmedMean(trim=trim).combine(deltas, np.ones(count))
        expected = stats.trim_mean(deltas.astype(np.float64), trim, axis=0)
        assert_allclose(mean, expected, rtol=1e-6, atol=1e-7)

    @pytest.mark.parametrize(
        "rule", [WeightedMean(), UniformMean(), CoordinateMedian(), TrimmedMean(trim=0.2)]
    )
    def test_scale_is_a_factor_of_each_row_and_changes_no_input(self, rule: Any) -> None:
        for count in (1, 10):
            deltas = random_updates(3, count, 6).deltas
            before, scale = deltas.copy(), np.linspace(0.1, 1.0, count)
            weights = np.arange(1.0, count + 1)
            scaled = rule.combine((deltas * scale[:, None]).astype(np.float32), weights)
            assert_allclose(rule.combine(deltas, weights, scale=scale), scaled, rtol=1e-5)
            assert_array_equal(deltas, before)

    @pytest.mark.parametrize(
        "rule", [WeightedMean(), UniformMean(), CoordinateMedian(), TrimmedMean(trim=0.2)]
    )
    def test_blocks_leave_no_seams(self, rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        sent = random_updates(4, 7, 1001)
        whole = rule.combine(sent.deltas, np.arange(1.0, 8.0))
        factors = clip_factors(sent.deltas, 1.0)
        monkeypatch.setattr(blocks, "_BLOCK", 64)
        assert_array_equal(rule.combine(sent.deltas, np.arange(1.0, 8.0)), whole)
        assert_allclose(clip_factors(sent.deltas, 1.0), factors, rtol=1e-12)

    @given(
        arrays.arrays(
            np.float32,
            st.tuples(st.integers(1, 9), st.integers(1, 4)),
            elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
        ),
        st.data(),
    )
    def test_no_rule_leaves_what_the_clients_span(self, deltas: Vector, data: Any) -> None:
        count = len(deltas)
        weights = np.array(data.draw(st.lists(st.integers(1, 999), min_size=count, max_size=count)))
        slack = 1e-5 * np.abs(deltas).max(axis=0)
        for rule in (WeightedMean(), UniformMean(), CoordinateMedian(), TrimmedMean(trim=0.3)):
            combined = rule.combine(deltas, weights.astype(np.float64))
            assert np.all(combined <= deltas.max(axis=0) + slack)
            assert np.all(combined >= deltas.min(axis=0) - slack)

    def test_the_largest_numbers_do_not_overflow(self) -> None:
        top = float(np.finfo(np.float32).max)
        sent = updates(*([[top, -top]] * 10))
        for rule in (CoordinateMedian(), TrimmedMean(trim=0.1)):
            assert rule.combine(sent.deltas, np.ones(10)).tolist() == [top, -top]
        for server in (FedAdagrad(), FedAdam(), FedYogi()):  # whose squares are beyond float32
            after = applied(server, updates([1e38, -1e38]), updates([1e38, -1e38]))[-1]
            assert np.isfinite(after).all()


class TestServers:
    def test_fedavg_by_hand(self) -> None:
        assert applied(FedAvg(), TWO, weights=[1.0, 3.0], start=1.0)[0].tolist() == [5.0, 2.0, 7.0]
        uniform = FedAvg(weights="uniform")
        assert applied(uniform, TWO, weights=[1.0, 3.0], start=1.0)[0].tolist() == [4.0, 1.0, 5.0]

    def test_median_and_trimmed_mean_by_hand(self) -> None:
        sent = updates([1.0], [2.0], [3.0], [4.0], [100.0])
        assert applied(FedMedian(), sent, start=1.0)[0].tolist() == [4.0]
        assert applied(FedTrimmedMean(trim=0.2), sent, start=1.0)[0].tolist() == [4.0]
        assert applied(FedTrimmedMean(trim=0.1), sent, start=1.0)[0].tolist() == [23.0]

    def test_fedavgm_by_hand(self) -> None:
        """v = 1, then 0.5 + 3 = 3.5, then 1.75 - 1 = 0.75; the model moves by twice of it."""
        server = FedAvgM(momentum=0.5, learning_rate=2.0)
        models = applied(server, updates([1.0]), updates([3.0]), updates([-1.0]))
        assert [float(model[0]) for model in models] == [2.0, 9.0, 10.5]

    def test_fedavgm_without_momentum_is_fedavg(self) -> None:
        rounds = [random_updates(seed, 5, 8) for seed in range(3)]
        models = applied(FedAvgM(momentum=0.0), *rounds)
        for one, other in zip(models, applied(FedAvg(), *rounds), strict=True):
            assert_array_equal(one, other)

    def test_adaptive_servers_by_hand(self) -> None:
        """tau = 1, so v starts from 1; beta1 = 1/2, beta2 = 3/4; updates 4, then 2; rate 1.

        m = 2, then 1 + 1 = 2. FedAdagrad: v = 17, then 21. FedAdam: v = 3/4 + 4 = 4.75, then
        3.5625 + 1 = 4.5625. FedYogi: 16 > 1, so v = 1 + 4 = 5; 4 < 5, so v = 5 - 1 = 4.
        """
        common: dict[str, Any] = {"tau": 1.0, "beta1": 0.5, "learning_rate": 1.0}
        for server, first, second in (
            (FedAdagrad(**common), 17.0, 21.0),
            (FedAdam(beta2=0.75, **common), 4.75, 4.5625),
            (FedYogi(beta2=0.75, **common), 5.0, 4.0),
        ):
            one, two = applied(server, updates([4.0]), updates([2.0]))
            assert float(one[0]) == pytest.approx(2 / (sqrt(first) + 1), rel=1e-6)
            assert float(two[0] - one[0]) == pytest.approx(2 / (sqrt(second) + 1), rel=1e-6)

    @pytest.mark.parametrize("name", ["fedadagrad", "fedadam", "fedyogi"])
    def test_adaptive_servers_follow_algorithm_2(self, name: str) -> None:
        server: Any = SERVERS[name]()
        rounds = [random_updates(seed, 4, 6) for seed in range(5)]
        weights = [1.0, 2.0, 3.0, 4.0]
        models = applied(server, *rounds, weights=weights)
        for coordinate in range(6):
            x, m, v = 0.0, 0.0, server.tau**2
            for sent, model in zip(rounds, models, strict=True):
                column = sent.deltas[:, coordinate].tolist()
                delta = sum(w * d for w, d in zip(weights, column, strict=True)) / sum(weights)
                m = server.beta1 * m + (1 - server.beta1) * delta
                if name == "fedadagrad":
                    v = v + delta**2
                elif name == "fedadam":
                    v = server.beta2 * v + (1 - server.beta2) * delta**2
                else:
                    v = v - (1 - server.beta2) * delta**2 * copysign(1.0, v - delta**2)
                x = x + server.learning_rate * m / (sqrt(v) + server.tau)
                assert float(model[coordinate]) == pytest.approx(x, rel=1e-4, abs=1e-7)

    @pytest.mark.parametrize("name", SERVERS)
    def test_one_block_at_a_time_is_all_at_once(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rounds = [random_updates(seed, 5, 301) for seed in range(3)]
        whole = applied(SERVERS[name](clip_norm=3.0), *rounds, trainable=290)
        monkeypatch.setattr(blocks, "_BLOCK", 16)
        parts = applied(SERVERS[name](clip_norm=3.0), *rounds, trainable=290)
        assert_allclose(parts[-1], whole[-1], rtol=1e-6)

    def test_a_robust_rule_goes_with_any_optimiser(self) -> None:
        sent = updates([1.0], [2.0], [1000.0])
        robust = FedAvgM(combine=CoordinateMedian(), learning_rate=1.0)
        assert applied(robust, sent)[0].tolist() == [2.0]
        assert applied(FedAdam(combine=TrimmedMean(trim=0.4)), sent)[0] == pytest.approx(
            applied(FedAdam(), updates([2.0]))[0]
        )


class TestClipping:
    def test_by_hand(self) -> None:
        sent = updates([3.0, 4.0], [0.3, 0.4])  # norms 5 and 0.5
        assert_allclose(applied(FedAvg(clip_norm=1.0), sent)[0], [0.45, 0.6], rtol=1e-6)
        assert_allclose(applied(FedAvg(clip_norm=5.0), sent)[0], [1.65, 2.2], rtol=1e-6)

    @pytest.mark.parametrize("name", SERVERS)
    def test_every_server_clips(self, name: str) -> None:
        sent = updates([30.0, 40.0])
        shortened = applied(SERVERS[name](), updates([3.0, 4.0]))[0]
        assert_allclose(applied(SERVERS[name](clip_norm=5.0), sent)[0], shortened, rtol=1e-6)

    def test_statistics_do_not_count_for_the_norm(self) -> None:
        sent = updates([0.5, 0.5, 100.0])
        assert applied(FedAvg(clip_norm=1.0), sent, trainable=2)[0].tolist() == [0.5, 0.5, 100.0]

    def test_an_update_of_zero_stays(self) -> None:
        assert applied(FedAvg(clip_norm=1.0), updates([0.0, 0.0]))[0].tolist() == [0.0, 0.0]


def test_uniform_means_uniform_for_statistics_too() -> None:
    sent = updates([1.0, 100.0], [3.0, 0.0])
    (after,) = applied(FedAvg(weights="uniform"), sent, weights=[1.0, 3.0], start=0.0, trainable=1)
    assert after.tolist() == [2.0, 50.0]


@pytest.mark.parametrize("name", SERVERS)
class TestEveryServer:
    def test_statistics_move_by_the_combined_update_and_nothing_else(self, name: str) -> None:
        """The last two of four parameters; also in a second round, where there is momentum."""
        sent = updates([1.0, 2.0, 100.0, 0.0], [3.0, 4.0, 0.0, 4.0])
        server = SERVERS[name](clip_norm=0.001)
        first, second = applied(server, sent, sent, weights=[1.0, 3.0], start=1.0, trainable=2)
        robust = ("median", "trimmed-mean", "krum", "multi-krum")
        moved = [25.0, 3.0]
        if name in robust:  # of two clients, all of these are their plain mean
            moved = [50.0, 2.0]
        elif name == "geometric-median":  # the client with most of the weight
            moved = [0.0, 4.0]
        near = 1e-3 if name == "geometric-median" else 0.0
        assert_allclose(first[2:], np.add(1.0, moved), rtol=0, atol=near)
        assert_allclose(second[2:], np.add(1.0, np.multiply(2, moved)), rtol=0, atol=near)
        assert (first[:2] != 1.0).all()

    def test_nobody_moves_nothing(self, name: str) -> None:
        server = SERVERS[name]()
        state = server.init(3)
        model = server.apply(state, np.ones(3, dtype=np.float32), TWO, np.ones(2), 3)
        memory = {key: array.copy() for key, array in to_arrays(state).items()}
        nobody = Updates(
            clients=np.arange(0), deltas=np.empty((0, 3), dtype=np.float32), signals={}
        )
        for sent, weights in ((nobody, np.empty(0)), (TWO, np.zeros(2))):
            after = server.apply(state, model, sent, weights, 3)
            assert_array_equal(after, model)
            assert after is not model
        for key, array in to_arrays(state).items():
            assert_array_equal(array, memory[key])

    def test_inputs_stay_as_they_are(self, name: str) -> None:
        server, sent = SERVERS[name](clip_norm=0.5), random_updates(5, 1, 4)
        model, before = np.ones(4, dtype=np.float32), sent.deltas.copy()
        after = server.apply(server.init(4), model, sent, np.ones(1), 3)
        assert model.tolist() == [1.0] * 4
        assert_array_equal(sent.deltas, before)
        assert after.dtype == np.float32

    def test_saved_and_restored_it_goes_on_bit_for_bit(self, name: str) -> None:
        server = SERVERS[name]()
        rounds = [random_updates(seed, 3, 5) for seed in range(4)]
        steady = applied(server, *rounds)[-1]
        model, state = np.zeros(5, dtype=np.float32), server.init(5)
        for sent in rounds:
            model = server.apply(state, model, sent, np.ones(3), 5)
            saved, _ = from_bytes(to_bytes(to_arrays(state), {}), source="test")
            state = server.init(5)
            load_arrays(state, saved)
        assert_array_equal(model, steady)

    def test_toml(self, name: str) -> None:
        for server in (SERVERS[name](), SERVERS[name](clip_norm=2.5)):
            table = tomllib.loads(tomli_w.dumps(to_table(server)))
            assert named(SERVERS, table, key=(), what="server") == server
            assert table["name"] == name

    def test_one_client_of_plain_averaging_sets_the_model(self, name: str) -> None:
        server = SERVERS[name]()
        model = applied(server, updates([0.25, -0.5]), weights=[7.0], start=1.0)[0]
        if isinstance(server, ModelMixing):  # 0.4 of the old model and 0.6 of the client's
            assert_allclose(model, [1.15, 0.7], rtol=1e-6)
        elif server.init(2).momentum.size == 0 or isinstance(server, FedAvgM):
            assert model.tolist() == [1.25, 0.5]
        else:
            assert model[0] > 1.0 > model[1]


class TestPoison:
    HONEST = random_updates(6, 9, 20)

    def poisoned(self, value: float) -> Updates:
        bad = np.full((3, 20), value, dtype=np.float32)
        deltas = np.concatenate([self.HONEST.deltas, bad])
        return Updates(clients=np.arange(12), deltas=deltas, signals={})

    @pytest.mark.parametrize("server", [FedMedian(), FedTrimmedMean(trim=0.25)])
    @pytest.mark.parametrize("value", [-1e30, 1e30])
    def test_a_quarter_of_liars_stays_within_what_the_honest_sent(
        self, server: Aggregation, value: float
    ) -> None:
        model = applied(server, self.poisoned(value))[0]
        assert np.all(model <= self.HONEST.deltas.max(axis=0))
        assert np.all(model >= self.HONEST.deltas.min(axis=0))

    def test_the_mean_is_lost_without_clipping(self) -> None:
        assert np.all(applied(FedAvg(), self.poisoned(1e30))[0] > 1e29)
        clipped = applied(FedAvg(clip_norm=1.0), self.poisoned(1e30))[0]
        assert float(np.linalg.norm(clipped)) <= 1.0

    def test_half_of_the_clients_bend_the_median(self) -> None:
        """The bound is sharp, so the tests above could fail."""
        sent = updates([0.0], [0.0], [1e6], [1e6])
        assert applied(FedMedian(), sent)[0] == 5e5


class TestFiniteRows:
    def test_by_hand(self) -> None:
        inf, nan, top = np.inf, np.nan, float(np.finfo(np.float32).max)
        sent = updates(
            [1.0, 2.0, 3.0],
            [1.0, nan, 3.0],
            [inf, 2.0, 3.0],
            [inf, -inf, 0.0],
            [top, top, top],
            [1.0, 2.0, 3.0],
            [1.0, 2.0, 3.0],
            loss=[1.0, 1.0, 1.0, 1.0, 1.0, nan, 1.0],
            update_norm=[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, inf],
        )
        assert finite_rows(sent).tolist() == [True, False, False, False, True, False, False]

    def test_nobody(self) -> None:
        nobody = Updates(
            clients=np.arange(0), deltas=np.empty((0, 3), dtype=np.float32), signals={}
        )
        assert finite_rows(nobody).shape == (0,)

    @given(
        arrays.arrays(
            np.float32,
            st.tuples(st.integers(1, 5), st.integers(1, 40)),
            elements=st.floats(width=32),
        )
    )
    def test_is_numpys(self, deltas: Vector) -> None:
        sent = Updates(clients=np.arange(len(deltas)), deltas=deltas, signals={})
        assert_array_equal(finite_rows(sent), np.isfinite(deltas).all(axis=1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """As a training has it."""

    server: Aggregation = field(default_factory=FedAvg)


class TestConfiguration:
    @pytest.mark.parametrize(
        ("text", "server"),
        [
            ('server = "fedavg"', FedAvg()),
            ('server = { name = "fedavg", weights = "uniform" }', FedAvg(weights="uniform")),
            ('server = { name = "fedadam", learning_rate = 0.01 }', FedAdam(learning_rate=0.01)),
            ('server = { name = "median", clip_norm = 3 }', FedMedian(clip_norm=3.0)),
            ('server = { name = "trimmed-mean", trim = 0.2 }', FedTrimmedMean(trim=0.2)),
            (
                'server = { name = "fedyogi", combine = { name = "trimmed-mean", trim = 0.2 } }',
                FedYogi(combine=TrimmedMean(trim=0.2)),
            ),
            (
                'server = { name = "fedavgm", combine = "coordinate-median" }',
                FedAvgM(combine=CoordinateMedian()),
            ),
        ],
    )
    def test_what_users_write(self, text: str, server: Aggregation) -> None:
        assert from_table(Experiment, tomllib.loads(text)) == Experiment(server=server)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{ name = "fedavg", weights = "size" }', "weights = 'size', expected one of 'data'"),
            ('{ name = "fedavg", clip_norm = 0 }', "clip_norm = 0.0, expected a number > 0"),
            ('{ name = "trimmed-mean", trim = 0.5 }', r"trim = 0.5, expected a number in \[0, 0.5"),
            ('{ name = "fedadam", combine = { name = "trimmed-mean", trim = -1 } }', "trim = -1.0"),
            ('{ name = "fedadam", learning_rate = 0 }', "learning_rate = 0.0, expected"),
            ('{ name = "fedadam", beta2 = 1 }', "beta2 = 1.0, expected"),
            ('{ name = "fedyogi", beta1 = 1 }', "beta1 = 1.0, expected"),
            ('{ name = "fedadagrad", beta2 = 0.9 }', "unknown key 'beta2'"),
            ('{ name = "fedadagrad", tau = 0 }', "tau = 0.0, expected"),
            ('{ name = "fedavgm", momentum = 1.0 }', "momentum = 1.0, expected"),
            ('{ name = "fedavgm", combine = "mean" }', "unknown combine 'mean'"),
            ('{ name = "fedavgn" }', "unknown server 'fedavgn' .did you mean"),
        ],
    )
    def test_what_they_must_not(self, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            from_table(Experiment, tomllib.loads(f"server = {text}"))

    def test_the_registry_is_all_servers_by_their_names(self) -> None:
        assert all(kind.name == name for name, kind in SERVERS.items())
        assert len(SERVERS) == 11
        assert all(issubclass(kind, Aggregation) for kind in SERVERS.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": np.zeros(2, dtype=np.float32)}, r"shape \(2, 3\), expected \(2, 2\)"),
        ({"weights": np.ones(3)}, r"shape \(2, 3\), expected \(3, 3\)"),
        ({"parameters": np.zeros(3)}, "parameters are float64"),
        ({"weights": np.array([1.0, -1.0])}, "finite numbers >= 0"),
        ({"weights": np.array([1.0, np.nan])}, "finite numbers >= 0"),
        ({"num_trainable": 4}, "num_trainable is 4, expected 0 … 3"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "state": FedAvg().init(3),
        "parameters": np.zeros(3, dtype=np.float32),
        "updates": TWO,
        "weights": np.ones(2),
        "num_trainable": 3,
    }
    with pytest.raises(DataError, match=message):
        FedAvg().apply(**{**arguments, **change})
