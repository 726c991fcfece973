"""Pisces' setting is the published one, and each sentence on it can hold and fail."""

import tomllib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.racing.milestones import Milestones
from claims.roundless import pisces
from claims.roundless.contestants import OORT_ROUNDS, PISCES, RANDOM
from claims.roundless.pisces import BSFL_4, CONTESTANTS, FEDBUFF, PublishedSetting
from claims.roundless.published_pisces import LeNet5, OwnMixtures
from fedmuster.core.errors import ConfigError
from fedmuster.core.streams import PARTITION, stream
from fedmuster.experiments.spec import Experiment
from fedmuster.federation.triggers import Buffer, Pace
from fedmuster.report.runs import Run
from fedmuster.training.aggregation import ModelMixing
from fedmuster.training.data import MNIST
from fedmuster.training.training_records import DataSet, Shares

SECONDS = 100
TIMES: Mapping[str, float] = {RANDOM: 90, OORT_ROUNDS: 60, FEDBUFF: 40, PISCES: 20, BSFL_4: 35}


def labelled(samples: int = 4000, classes: int = 10) -> DataSet:
    """Equally many samples of each class."""
    targets = np.arange(samples) % classes
    nothing = np.zeros((samples, 1), dtype=np.float32)
    return DataSet(
        train_inputs=nothing,
        train_targets=targets,
        test_inputs=nothing[:1],
        test_targets=targets[:1],
        num_classes=classes,
    )


def drawn(partition: OwnMixtures, clients: int, *, seed: int = 0) -> Shares:
    return partition.split(labelled(), clients, stream(seed, PARTITION))


def test_each_client_draws_its_own_samples_once() -> None:
    shares = drawn(OwnMixtures(samples=100), 60)
    np.testing.assert_array_equal(shares.sizes, np.full(60, 100))
    for k in range(60):
        own = shares.rows[shares.offsets[k] : shares.offsets[k + 1]]
        assert len(np.unique(own)) == 100
    assert len(np.unique(shares.rows)) < 4000  # 6,000 were drawn: two clients may have the same
    np.testing.assert_array_equal(shares.rows, drawn(OwnMixtures(samples=100), 60).rows)
    assert (shares.rows != drawn(OwnMixtures(samples=100), 60, seed=1).rows).any()


@pytest.mark.parametrize("alpha", [0.5, 1.0, 4.0])
def test_labels_are_mixed_by_dirichlet(alpha: float) -> None:
    """Of 20 samples the share of a label varies as p, and by the draw: p (1 - p) / 20."""
    size, clients, classes = 20, 2000, 10
    shares = drawn(OwnMixtures(samples=size, alpha=alpha), clients)
    labels = (shares.rows % classes).reshape(clients, size)
    share = np.stack([(labels == label).mean(axis=1) for label in range(classes)], axis=1)
    total = alpha * classes
    between = 0.1 * 0.9 / (total + 1)
    within = (0.1 * 0.9 - between) / size
    assert share.mean(axis=0) == pytest.approx(np.full(classes, 0.1), abs=0.02)
    assert share.var(axis=0).mean() == pytest.approx(between + within, rel=0.06)


def test_a_client_gets_all_there_is_at_most() -> None:
    shares = OwnMixtures(samples=9000).split(labelled(), 2, stream(0, PARTITION))
    np.testing.assert_array_equal(shares.sizes, [4000, 4000])


@pytest.mark.parametrize(("field", "value"), [("samples", 0), ("alpha", 0.0), ("alpha", np.inf)])
def test_refusals(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        OwnMixtures(**{field: value})
    assert caught.value.key == (field,)


def test_lenet_5_has_its_parameters() -> None:
    pytest.importorskip("torch")
    network = LeNet5().build((1, 28, 28), 10)
    assert sum(weights.numel() for weights in network.parameters()) == 61_706


def test_the_setting_is_the_authors() -> None:
    experiment = PublishedSetting(data=MNIST(), model=LeNet5()).experiment()
    assert Experiment.from_table(tomllib.loads(experiment.to_toml())) == experiment
    run = experiment.world.start(0)
    latency = run.typical_latency_seconds()
    assert (len(latency), latency.min(), latency.max()) == (200, 15.0, 180.0)
    assert experiment.training is not None
    assert experiment.training.server == ModelMixing(mixing=1.0)
    local = experiment.training.local
    assert (local.epochs, local.batch_size) == (5, 32)
    assert (local.learning_rate, local.momentum) == (0.01, 0.9)
    settled = {}
    for contestant in CONTESTANTS:
        federation = experiment.federation_of(contestant.label)
        assert federation is not None
        settled[contestant.label] = federation.settled(contestant.policy, run.problem)
    assert {federation.slots for federation in settled.values()} == {20}
    assert {label for label, own in settled.items() if own.in_rounds} == {RANDOM, OORT_ROUNDS}
    assert settled[FEDBUFF].trigger == settled[BSFL_4].trigger == Buffer(answers=4)
    assert settled[PISCES].trigger == Pace()


def run(label: str, seed: int, at: float, end: float) -> Run:
    """Accuracy 0 until the level is reached, then ``end``; a row a second."""
    accuracy = np.where(np.arange(1, SECONDS + 1) >= at + seed, end, 0.0)
    ones = np.ones(SECONDS)
    columns = {"seconds": ones, "accuracy": accuracy, "num_completed": ones}
    columns["num_aggregated"] = ones
    return run_by_hand(label, seed, [(0,)] * SECONDS, columns, num_parameters=1000)


def milestones(times: Mapping[str, float] | None = None, *, pisces_end: float = 0.9) -> Milestones:
    """Three seeds of every contestant; times that are not given are as in TIMES."""
    at = {**TIMES, **(times or {})}
    ends = dict.fromkeys(TIMES, 0.9) | {PISCES: pisces_end}
    runs = {
        label: tuple(run(label, seed, at[label], ends[label]) for seed in range(3))
        for label in TIMES
    }
    return Milestones(runs=runs, levels=np.full(3, 0.8), horizon_seconds=float(SECONDS))


def verdicts(mixed: Milestones, added: Milestones | None = None) -> list[bool]:
    return [finding.holds for finding in pisces.findings(mixed, added or milestones())]


def test_every_sentence_can_hold_and_fail() -> None:
    assert verdicts(milestones()) == [True] * 6
    assert verdicts(milestones({OORT_ROUNDS: 19})) == [False, True, False, True, True, True]
    assert verdicts(milestones({FEDBUFF: 19})) == [True, False, True, True, True, True]
    assert verdicts(milestones({FEDBUFF: 65})) == [True, True, False, True, True, True]
    assert verdicts(milestones({BSFL_4: 19})) == [True, True, True, False, True, True]
    assert verdicts(milestones(pisces_end=0.89)) == [True, True, True, True, False, True]
    assert verdicts(milestones({PISCES: np.inf}))[:2] == [False, False]
    assert verdicts(milestones({FEDBUFF: np.inf}))[1]  # a rival that never comes is beaten


@pytest.mark.parametrize("label", [PISCES, FEDBUFF, BSFL_4])
def test_the_other_server_is_judged_by_its_own_runs(label: str) -> None:
    assert verdicts(milestones(), milestones({label: 70.0})) == [True] * 5 + [False]


def test_speed_ups_are_ratios_of_times() -> None:
    exact = {PISCES: 20.0, FEDBUFF: 40.0}
    one = milestones(exact)
    ratios = one.seconds(FEDBUFF) / one.seconds(PISCES)
    assert ratios[0] == pytest.approx(2.0, abs=0.15)
    assert pisces.speed_up_text(one, FEDBUFF).startswith(f"{ratios.mean():.2f} ± ")
    assert pisces.speed_up_text(milestones({FEDBUFF: np.inf}), FEDBUFF) == "–"


def test_only_the_papers_sentences_decide() -> None:
    found = pisces.findings(milestones(), milestones())
    assert [finding.ours for finding in found] == [False] * 2 + [True] * 4
