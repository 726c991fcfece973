"""Adversaries: which clients they are, what they do in any world, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedmuster.core.config import from_text, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback, Selection
from fedmuster.experiments.spec import Experiment
from fedmuster.worlds import WORLDS, Adversaries, BSFLGroups
from fedmuster.worlds.adversaries import AdversaryRun
from fedmuster.worlds.job_draws import JobDraws

K = 50


def world(**attack: Any) -> BSFLGroups:
    return BSFLGroups(
        num_clients=K, cohort_size=5, deadline_seconds=9.0, adversaries=Adversaries(**attack)
    )


def run_of(seed: int = 3, **attack: Any) -> AdversaryRun:
    return Adversaries(**attack).start(K, seed)


class TestWho:
    def test_a_share_of_all_clients_that_follows_from_the_seed(self) -> None:
        one, again, other = (run_of(seed, silent=True, share=0.3).clients for seed in (1, 1, 2))
        assert_array_equal(one, again)
        assert len(set(one.tolist())) == 15
        assert set(one.tolist()) != set(other.tolist())

    def test_they_are_the_same_whatever_they_do(self) -> None:
        assert_array_equal(run_of(silent=True).clients, run_of(loss_factor=2.0).clients)

    def test_a_column_marks_them(self) -> None:
        begun = world(loss_factor=10.0).start(4)
        assert begun.adversaries is not None
        assert_array_equal(begun.columns["adversary"] > 0, begun.adversaries.mask)


class TestDraws:
    def test_liars_change_no_draw(self) -> None:
        lying = world(latency_factor=0.1, loss_factor=10.0, update_factor=-1.0)
        honest = replace(lying, adversaries=None)
        for number in (1, 7):
            drawn = [each.start(2).realise(number) for each in (lying, honest)]
            assert_array_equal(drawn[0].latency_seconds, drawn[1].latency_seconds)
            assert_array_equal(drawn[0].truth.mean_speed, drawn[1].truth.mean_speed)

    def test_the_silent_never_answer_and_all_others_are_as_they_were(self) -> None:
        silent = world(silent=True, honest_rounds=2)
        begun, honest = silent.start(2), replace(silent, adversaries=None).start(2)
        assert begun.adversaries is not None
        mask = begun.adversaries.mask
        for number in (2, 3):
            drawn, true = begun.realise(number), honest.realise(number)
            expected = np.where(mask & (number > 2), np.inf, true.latency_seconds)
            assert_array_equal(drawn.latency_seconds, expected)
            speed = np.where(mask & (number > 2), 0.0, true.truth.mean_speed)
            assert_array_equal(drawn.truth.mean_speed, speed)

    def test_sybils_share_a_machine(self) -> None:
        begun = world(sybils=True).start(2)
        assert begun.adversaries is not None
        sybils, drawn = begun.adversaries.clients, begun.realise(1)
        assert len(set(drawn.latency_seconds[sybils])) == 1
        honest = np.flatnonzero(~begun.adversaries.mask)[:2]
        cohort = np.sort(np.concatenate([sybils[:3], honest]))
        outcome = drawn.play(Selection(round=1, clients=cohort))
        times = np.where(np.isin(cohort, sybils), 3.0, 1.0)  # of three, each takes three times
        assert_array_equal(outcome.latency_seconds, drawn.latency_seconds[cohort] * times)

    def test_without_rounds_those_at_work_count_too(self) -> None:
        begun = world(sybils=True).start(2)
        assert begun.adversaries is not None
        sybils, drawn = begun.adversaries.clients, JobDraws(begun).at(0.0)
        busy = np.zeros(K, dtype=np.bool_)
        busy[sybils[:4]] = True
        one = Selection(round=1, clients=sybils[4:5])
        alone, _ = drawn.job_of(one)
        beside, _ = drawn.job_of(one, busy=busy)
        assert_array_equal(beside, 5 * alone)

    def test_without_rounds_the_silent_wake_in_jobs_of_their_own(self) -> None:
        begun = world(silent=True, honest_rounds=1).start(2)
        assert begun.adversaries is not None
        draws, (first, second) = JobDraws(begun), begun.adversaries.clients[:2]
        draws.take(Selection(round=1, clients=np.array([first])))
        drawn = draws.at(0.0)
        assert drawn.latency_seconds[first] == np.inf
        assert drawn.latency_seconds[second] < np.inf
        assert drawn.truth.mean_speed[first] == 0.0 < drawn.truth.mean_speed[second]

    @pytest.mark.parametrize("name", sorted(WORLDS))
    def test_every_world_has_them(self, name: str, tmp_path: Path) -> None:
        kind: Any = WORLDS[name]
        text = f"{name}:adversaries={{silent=true, sybils=true}}"
        if kind.__dataclass_fields__["deadline_seconds"].default is None:
            text += ",deadline_seconds=5.0"
        if name == "trace":
            rows = [f"{client},1,{1 + client}" for client in range(10)]
            trace = tmp_path / "trace.csv"
            trace.write_text("\n".join(["client,round,latency_seconds", *rows]))
            text += f',path="{trace}",cohort_size=3'
        begun = from_text(WORLDS, text).start(1)
        assert begun.adversaries is not None
        drawn = begun.realise(1)
        assert np.isinf(drawn.latency_seconds[begun.adversaries.clients]).all()
        chosen = np.flatnonzero(drawn.available)[:3]
        edges = None
        if drawn.edges is not None:
            edges = np.argmax(drawn.edges.coverage[chosen], axis=1)
        outcome = drawn.play(Selection(round=1, clients=chosen, edges=edges))
        silent = begun.adversaries.mask[chosen]
        assert not outcome.feedback.answered[silent].any()


class TestReports:
    def told(self, run: AdversaryRun, number: int = 1) -> Feedback:
        liar, honest = run.clients[0], np.flatnonzero(~run.mask)[0]
        signals = {"loss": 2.0, "accuracy_before": 0.8, "compute_seconds": 3.0, "update_norm": 5.0}
        true = Feedback(
            clients=np.array([liar, honest]),
            latency_seconds=np.array([4.0, 4.0]),
            signals={name: np.array([value, value]) for name, value in signals.items()},
        )
        return run.told(true, number)

    def test_a_tenth_of_the_latency_and_ten_times_the_loss(self) -> None:
        told = self.told(run_of(latency_factor=0.1, loss_factor=10.0))
        assert told.reported_seconds is not None
        assert told.reported_seconds.tolist() == pytest.approx([0.4, 4.0])
        assert told.latency_seconds.tolist() == [4.0, 4.0]
        assert told.signals["loss"].tolist() == [20.0, 2.0]
        assert told.signals["accuracy_before"].tolist() == pytest.approx([0.08, 0.8])
        assert told.signals["compute_seconds"].tolist() == pytest.approx([0.3, 3.0])
        assert told.signals["update_norm"].tolist() == [5.0, 5.0]

    def test_sleepers_are_honest_at_first(self) -> None:
        run = run_of(loss_factor=10.0, honest_rounds=20)
        losses = [self.told(run, number).signals["loss"][0] for number in (20, 21)]
        assert losses == [2.0, 20.0]
        asked = [run.asked_loss(run.clients[:1], np.ones(1), number)[0] for number in (20, 21)]
        assert asked == [1.0, 10.0]

    def test_the_overhead_repeats_and_has_its_mean(self) -> None:
        run = run_of(loss_factor=2.0, overhead_seconds=4.0)
        seen = run.overhead(7, 10_000)
        assert_array_equal(seen, run.overhead(7, 10_000))
        assert 2.0 <= seen.min() <= seen.max() <= 6.0
        assert seen.mean() == pytest.approx(4.0, abs=5 * 4.0 / np.sqrt(12 * 10_000))


class TestPoison:
    def sent(self, run: AdversaryRun, clients: list[int], order: int = 1) -> np.ndarray[Any, Any]:
        rows = np.random.default_rng(0).standard_normal((K, 2000)).astype(np.float32)[clients]
        run.poison(rows, np.array(clients), np.full(len(clients), order))
        return rows

    @pytest.mark.parametrize("factor", [-1.0, 10.0, 0.0])
    def test_a_factor_multiplies_the_updates_of_adversaries_alone(self, factor: float) -> None:
        run, clients = run_of(update_factor=factor), list(range(K))
        honest = self.sent(run_of(loss_factor=2.0), clients)
        expected = np.where(run.mask[:, np.newaxis], np.float32(factor) * honest, honest)
        assert_array_equal(self.sent(run, clients), expected)

    def test_noise_is_in_units_of_the_update_and_the_same_in_any_group(self) -> None:
        run = run_of(update_noise=3.0)
        liar, other = run.clients[:2].tolist()
        honest = self.sent(run_of(loss_factor=2.0), [liar])[0]
        alone, together = self.sent(run, [liar])[0], self.sent(run, [other, liar])[1]
        assert_array_equal(alone, together)
        assert (alone - honest).std() == pytest.approx(3.0 * honest.std(), rel=0.1)
        assert not np.array_equal(alone, self.sent(run, [liar], order=2)[0])


class TestConfiguration:
    @pytest.mark.parametrize(
        ("settings", "key"),
        [
            ({}, ("share",)),
            ({"silent": True, "share": 0.0}, ("share",)),
            ({"silent": True, "share": 1.0}, ("share",)),
            ({"silent": True, "share": float("nan")}, ("share",)),
            ({"silent": 1}, ("silent",)),
            ({"latency_factor": 0.0}, ("latency_factor",)),
            ({"loss_factor": float("inf")}, ("loss_factor",)),
            ({"loss_factor": -2.0}, ("loss_factor",)),
            ({"update_factor": 1e30}, ("update_factor",)),
            ({"update_noise": -1.0}, ("update_noise",)),
            ({"silent": True, "honest_rounds": -1}, ("honest_rounds",)),
            ({"silent": True, "overhead_seconds": -1.0}, ("overhead_seconds",)),
        ],
    )
    def test_what_makes_no_sense_is_refused(
        self, settings: dict[str, Any], key: tuple[str, ...]
    ) -> None:
        with pytest.raises(ConfigError) as refusal:
            Adversaries(**settings)
        assert refusal.value.key == key

    def test_a_share_of_nobody_is_refused(self) -> None:
        with pytest.raises(ConfigError) as refusal:
            Adversaries(silent=True, share=0.001).start(K, 0)
        assert refusal.value.key == ("adversaries", "share")

    def test_the_silent_need_a_deadline(self) -> None:
        with pytest.raises(ConfigError) as refusal:
            BSFLGroups(num_clients=K, adversaries=Adversaries(silent=True))
        assert refusal.value.key == ("deadline_seconds",)

    def test_a_spec_has_them_and_an_honest_one_does_not(self) -> None:
        text = "bsfl-groups:num_clients=50,adversaries={loss_factor=10, honest_rounds=100}"
        lying = from_text(WORLDS, text)
        spec = Experiment.from_table({"rounds": 3, "world": to_table(lying), "policy": "random"})
        assert spec.world == lying
        assert Experiment.from_table(spec.to_table()).world == lying
        assert "adversaries" not in to_table(BSFLGroups())

    def test_an_unknown_key_is_named(self) -> None:
        with pytest.raises(ConfigError) as refusal:
            from_text(WORLDS, "bsfl-groups:adversaries={loss=10}")
        assert refusal.value.key == ("adversaries", "loss")
