"""Muster around real strategies, in a federation in one process."""

import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbCyclic,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Result,
    Strategy,
)
from tests.flower.tiny_app import evaluated, federation, model, nodes, quick, trained

from fedmuster import (
    BSFL,
    COCS,
    SAFA,
    AllClients,
    DivFL,
    FedCor,
    FedSUV,
    HiCSFL,
    Oort,
    PowerOfChoice,
    Random,
)
from fedmuster.core.errors import CallOrderError, ConfigError, InUseError, StateError
from fedmuster.core.policy import Policy
from fedmuster.experiments.journal import Journal, JournalReader
from fedmuster.flower import EdgeGroups, Muster, ReportingMod
from fedmuster.flower.in_process import InProcessGrid, Node


def start(muster: Muster, grid: Any, rounds: int = 3, **more: Any) -> Result:
    return muster.start(grid=grid, initial_arrays=model(), num_rounds=rounds, timeout=10.0, **more)


@pytest.mark.parametrize(
    "strategy",
    [
        FedAvg(),
        FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        FedProx(proximal_mu=0.1),
        FedAvgM(server_momentum=0.9),
        FedAdam(),
        FedAdagrad(),
        FedYogi(),
        FedMedian(),
        FedTrimmedAvg(),
        Krum(),
        MultiKrum(num_malicious_nodes=0, num_nodes_to_select=2),
        QFedAvg(client_learning_rate=0.1),
        DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.01, 1.0, 3),
        DifferentialPrivacyServerSideAdaptiveClipping(FedAdam(), 0.01, 3),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_every_strategy_trains_with_the_cohort_alone(strategy: Strategy, tmp_path: Path) -> None:
    asked: list[int] = []

    def note(message: Message, context: Context) -> Message:
        asked.append(context.node_id)
        return trained(message, context)

    result = start(quick(tmp_path, strategy), federation(train=note), rounds=4)
    journal = JournalReader(tmp_path)
    assert len(asked) == 12
    assert [len(cohort) for cohort in journal.cohorts] == [3] * 4
    for number, cohort in enumerate(journal.cohorts):
        in_order = {int(node) - 1000 for node in asked[3 * number : 3 * number + 3]}
        assert in_order == set(cohort.tolist())
    assert set(result.train_metrics_clientapp) == {1, 2, 3, 4}
    assert np.abs(result.arrays["w"].numpy()).max() > 0.0


def test_the_model_is_the_one_that_flower_alone_would_make(tmp_path: Path) -> None:
    everyone = start(quick(tmp_path, cohort_size=6), federation())
    bare = FedAvg().start(grid=federation(), initial_arrays=model(), num_rounds=3, timeout=10.0)
    assert everyone.arrays["w"].numpy().tolist() == bare.arrays["w"].numpy().tolist()
    assert everyone.evaluate_metrics_clientapp == bare.evaluate_metrics_clientapp


def test_after_each_run_the_strategy_is_as_it_was(tmp_path: Path) -> None:
    strategy = FedAvg()
    before = dict(vars(strategy))
    start(quick(tmp_path, strategy), federation())
    assert vars(strategy) == before


def test_a_start_of_the_users_own_runs_and_sees_the_cohort(tmp_path: Path) -> None:
    class Custom(FedAvg):
        rounds_seen = 0

        def start(
            self,
            grid: Grid,
            initial_arrays: ArrayRecord,
            num_rounds: int = 3,
            timeout: float = 3600,
            train_config: ConfigRecord | None = None,
            evaluate_config: ConfigRecord | None = None,
            evaluate_fn: Any = None,
        ) -> Result:
            arrays, result = initial_arrays, Result()
            for number in range(1, num_rounds + 1):
                messages = self.configure_train(number, arrays, ConfigRecord(), grid)
                replies = grid.send_and_receive(messages, timeout=timeout)
                new, _ = self.aggregate_train(number, replies)
                arrays = new or arrays
                Custom.rounds_seen += 1
            result.arrays = arrays
            return result

    start(quick(tmp_path, Custom()), federation(), rounds=2)
    assert Custom.rounds_seen == 2
    assert [len(cohort) for cohort in JournalReader(tmp_path).cohorts] == [3, 3]


def test_what_clients_say_becomes_signals_and_is_on_record(tmp_path: Path) -> None:
    muster = quick(tmp_path, policy=Oort(), cohort_size=2)
    start(muster, federation(), rounds=5)
    journal = JournalReader(tmp_path)
    assert np.isfinite(journal.columns["train_loss"]).all()
    assert np.isfinite(journal.columns["accuracy"]).all()  # of eval_acc
    assert set(journal.clients["identity"]) == set("abcdef")
    assert "available" in journal.scores
    assert journal.scores["available"].shape == (5, 6)


def test_evaluation_on_the_server_is_on_record_and_keeps_its_round(tmp_path: Path) -> None:
    rounds = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        rounds.append(server_round)
        return MetricRecord({"loss": 1.0, "accuracy": 0.1 * server_round})

    strategy = FedAvg(fraction_evaluate=0.0)
    result = start(quick(tmp_path, strategy), federation(), rounds=2, evaluate_fn=evaluate)
    assert rounds == [0, 1, 2]
    assert JournalReader(tmp_path).columns["accuracy"].tolist() == [0.1, 0.2]
    assert result.evaluate_metrics_serverapp[2]["accuracy"] == 0.2
    start(quick(tmp_path, FedAvg(fraction_evaluate=0.0)), federation(), 3, evaluate_fn=evaluate)
    assert rounds == [0, 1, 2, 2, 3]


def test_a_continued_run_is_the_one_that_was_never_interrupted(tmp_path: Path) -> None:
    def play(folder: str, rounds: int) -> Result:
        grid = federation()
        for number, node in enumerate(grid.nodes):
            node.config["goal"] = float(number)  # another cohort would make another model
        return start(quick(tmp_path / folder, FedAdam()), grid, rounds)

    whole = play("whole", 6)
    for rounds in (2, 5):
        play("parts", rounds)
    parts = play("parts", 6)
    assert set(parts.train_metrics_clientapp) == set(range(1, 7))
    first, second = JournalReader(tmp_path / "whole"), JournalReader(tmp_path / "parts")
    assert [cohort.tolist() for cohort in second.cohorts] == [c.tolist() for c in first.cohorts]
    assert parts.arrays["w"].numpy().tolist() == whole.arrays["w"].numpy().tolist()


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first = start(quick(tmp_path), federation())
    again = start(quick(tmp_path), federation(names=""))  # not even a node is needed
    assert again.arrays["w"].numpy().tolist() == first.arrays["w"].numpy().tolist()
    assert again.train_metrics_clientapp == first.train_metrics_clientapp


def test_another_policy_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    start(quick(tmp_path), federation())
    with pytest.raises(StateError, match="holds another run"):
        start(quick(tmp_path, policy=BSFL()), federation(), rounds=9)


def test_failures_nan_and_odd_keys_do_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def naughty(message: Message, context: Context) -> Message:
        match context.node_config["client-id"]:
            case "a":
                raise RuntimeError("out of memory")
            case "b":
                reply = trained(message, context)
                (arrays,) = reply.content.array_records.values()
                arrays["w"] = model(np.nan)["w"]
                return reply
            case "c":
                return trained(message, context, extra=1.0)
        return trained(message, context)

    logging.getLogger("flwr").propagate = True
    with caplog.at_level(logging.INFO, logger="flwr"):
        result = start(quick(tmp_path, cohort_size=6), federation(train=naughty), rounds=2)
    journal = JournalReader(tmp_path)
    assert journal.columns["num_completed"].tolist() == [3, 3]
    assert journal.rejected[0].tolist() == [1, 2]
    assert np.isfinite(result.arrays["w"].numpy()).all()
    assert "out of memory" in caplog.text
    assert "'w' is not finite" in caplog.text


def test_a_round_in_which_everybody_fails_leaves_the_model_alone(tmp_path: Path) -> None:
    def fail(message: Message, context: Context) -> Message:
        raise RuntimeError("no")

    result = start(quick(tmp_path), federation(train=fail), rounds=2)
    assert result.arrays["w"].numpy().tolist() == [0.0] * 3
    assert JournalReader(tmp_path).columns["num_completed"].tolist() == [0, 0]


def test_who_is_late_is_left_alone_until_its_answer_comes(tmp_path: Path) -> None:
    grid = federation("abc")
    slow = grid.nodes[1]

    def evaluate(server_round: int, arrays: ArrayRecord) -> None:
        slow.delay_seconds = 0.6 if server_round == 0 else 0.0
        if server_round == 2:
            time.sleep(0.6)

    strategy = FedAvg(fraction_evaluate=0.0)
    muster = quick(tmp_path, strategy, cohort_size=3, deadline_seconds=0.15)
    start(muster, grid, rounds=3, evaluate_fn=evaluate)
    cohorts = [cohort.tolist() for cohort in JournalReader(tmp_path).cohorts]
    completed = JournalReader(tmp_path).columns["num_completed"].tolist()
    late = JournalReader(tmp_path).clients["identity"].tolist().index("b")
    assert cohorts == [[0, 1, 2], [each for each in range(3) if each != late], [0, 1, 2]]
    assert completed == [2, 2, 3]


def test_all_nodes_gone_is_a_round_without_anybody(tmp_path: Path) -> None:
    grid = federation("abc")

    def leave(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 1:
            for node in grid.nodes:
                grid.remove(node.node_id)
        if server_round == 2:
            for node in nodes("abc"):
                grid.add(node)

    muster = quick(tmp_path, FedAvg(fraction_evaluate=0.0), wait_seconds=0.1)
    began = time.monotonic()
    start(muster, grid, rounds=3, evaluate_fn=leave)
    assert time.monotonic() - began < 5.0
    assert [len(cohort) for cohort in JournalReader(tmp_path).cohorts] == [3, 0, 3]


def test_no_node_at_the_start_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="start SuperNodes"):
        start(quick(tmp_path, wait_seconds=0.1), federation(names=""))


def test_fewer_nodes_than_the_cohort_all_train(tmp_path: Path) -> None:
    start(quick(tmp_path, cohort_size=5, wait_seconds=0.2), federation("abc"), rounds=2)
    assert [len(cohort) for cohort in JournalReader(tmp_path).cohorts] == [3, 3]


def test_nodes_that_join_are_chosen_and_those_that_come_back_keep_their_place(
    tmp_path: Path,
) -> None:
    grid = federation("abc")

    def change(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 1:
            grid.add(Node(7, {"client-id": "new"}))
            grid.remove(1000)
        if server_round == 2:  # "a" comes back under another node id
            grid.add(Node(8, {"client-id": "a"}))

    strategy = FedAvg(fraction_evaluate=0.0)
    start(quick(tmp_path, strategy, cohort_size=4, wait_seconds=0.2), grid, 3, evaluate_fn=change)
    journal = JournalReader(tmp_path)
    assert [cohort.tolist() for cohort in journal.cohorts] == [[0, 1, 2], [1, 2, 3], [0, 1, 2, 3]]
    assert journal.clients["identity"].tolist() == ["a", "b", "c", "new"]


def test_over_selection_closes_with_the_first_answers(tmp_path: Path) -> None:
    def slow(message: Message, context: Context) -> Message:
        grid.nodes[3].delay_seconds = 60.0  # from its first training on, not when it is asked
        return trained(message, context)

    grid = federation("abcd", train=slow)
    muster = quick(tmp_path, FedAvg(fraction_evaluate=0.0), cohort_size=3, over_selection=1.3)
    start(muster, grid, rounds=2)
    journal = JournalReader(tmp_path)
    assert [cohort.tolist() for cohort in journal.cohorts] == [[0, 1, 2, 3], [0, 1, 2]]
    assert journal.columns["num_completed"].tolist() == [3, 3]
    assert np.all(journal.columns["seconds"] < 10.0)


def test_policies_that_ask_for_losses_get_them(tmp_path: Path) -> None:
    grid = federation("abcdef")
    for number, node in enumerate(grid.nodes):
        node.config["goal"] = float(number)  # the larger, the further from the model
    start(quick(tmp_path, policy=PowerOfChoice(variant="pow-d"), cohort_size=2), grid, rounds=1)
    assert [cohort.tolist() for cohort in JournalReader(tmp_path).cohorts] == [[4, 5]]


def test_policies_that_want_more_than_an_app_tells_still_choose(tmp_path: Path) -> None:
    start(quick(tmp_path, policy=FedSUV(), cohort_size=2), federation(), rounds=3)
    assert [len(cohort) for cohort in JournalReader(tmp_path).cohorts] == [2] * 3


def classifier(last: str = "bias") -> ArrayRecord:
    """Two classes, three inputs; ``last`` names the array at the end."""
    arrays = {"scores.weight": Array(np.zeros((2, 3))), "scores.bias": Array(np.zeros(2))}
    return ArrayRecord(arrays if last == "bias" else {**arrays, "scale": Array(np.ones((4, 4)))})


def towards_its_class(message: Message, context: Context) -> Message:
    """Clients a … d have a class each, e and f both."""
    (arrays,) = message.content.array_records.values()
    step = {"a": [1, -1], "b": [-1, 1], "c": [1, -1], "d": [-1, 1]}.get(
        str(context.node_config["client-id"]), [0.01, -0.01]
    )
    moved = {name: array.numpy().copy() for name, array in arrays.items()}
    moved["scores.bias"] += np.array(step)
    told = MetricRecord({"num-examples": 10, "train_loss": 1.0})
    sent = ArrayRecord({name: Array(values) for name, values in moved.items()})
    return Message(RecordDict({"arrays": sent, "metrics": told}), reply_to=message)


def test_policies_that_look_at_output_biases_see_them(tmp_path: Path) -> None:
    strategy = FedAvg(fraction_evaluate=0.0)
    muster = Muster(strategy, policy=HiCSFL(gamma=50.0), folder=tmp_path, cohort_size=2)
    grid = federation("abcdef", train=towards_its_class)
    muster.start(grid=grid, initial_arrays=classifier(), num_rounds=8, timeout=10.0)
    cohorts = [cohort.tolist() for cohort in JournalReader(tmp_path).cohorts]
    assert sorted(client for cohort in cohorts[:3] for client in cohort) == list(
        range(6)
    )  # everybody once
    assert cohorts[3:] == [[4, 5]] * 5


def test_a_model_that_does_not_end_in_output_biases_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = FedAvg(fraction_evaluate=0.0)
    muster = Muster(strategy, policy=HiCSFL(), folder=tmp_path, cohort_size=2)
    grid = federation("abcdef", train=towards_its_class)
    with caplog.at_level(logging.WARNING):
        muster.start(grid=grid, initial_arrays=classifier("scale"), num_rounds=5, timeout=10.0)
    assert [len(cohort) for cohort in JournalReader(tmp_path).cohorts] == [2] * 5
    assert sum("hics-fl" in record.message for record in caplog.records) == 1


def test_policies_that_compare_updates_or_losses_choose(tmp_path: Path) -> None:
    for policy in (DivFL(sketch_size=8), FedCor(warmup=2, interval=3)):
        folder = tmp_path / policy.name
        start(quick(folder, policy=policy, cohort_size=2), federation(), rounds=6)
        assert [len(cohort) for cohort in JournalReader(folder).cohorts] == [2] * 6


def test_edges_are_groups_of_nodes_with_budgets(tmp_path: Path) -> None:
    grid = federation("")
    for number in range(6):
        edge = "north" if number < 3 else "south"
        grid.add(Node(50 + number, {"client-id": f"c{number}", "edge": edge}))
    edges = EdgeGroups(names=("north", "south"), budget=(2.0, 1.0))
    strategy = FedAvg(min_train_nodes=1, min_available_nodes=1)
    start(quick(tmp_path, strategy, policy=COCS(), cohort_size=6, edges=edges), grid, rounds=4)
    journal = JournalReader(tmp_path)
    assert journal.edge_rows is not None
    for cohort, row in zip(journal.cohorts, journal.edge_rows, strict=True):
        assert np.array_equal(row.edges, (cohort >= 3).astype(int))
        assert np.all(np.bincount(row.edges, minlength=2) <= [2, 1])


def test_the_policy_can_be_given_by_name(tmp_path: Path) -> None:
    muster = quick(tmp_path, policy="bsfl:alpha=3,beta=1.2")
    assert muster.settings.policy == BSFL(alpha=3, beta=1.2)


def test_muster_inside_another_strategy_says_where_it_belongs(tmp_path: Path) -> None:
    wrapped = DifferentialPrivacyServerSideFixedClipping(quick(tmp_path), 1.0, 1.0, 3)
    with pytest.raises(CallOrderError, match="outermost"):
        wrapped.start(grid=federation(), initial_arrays=model(), num_rounds=1, timeout=5.0)


def test_started_again_it_trains_so_many_rounds_more(tmp_path: Path) -> None:
    muster = quick(tmp_path)
    grid = federation()
    for _ in range(3):
        start(muster, grid, rounds=1)
    assert len(JournalReader(tmp_path)) == 3
    again = quick(tmp_path)  # after a crash the app begins its own loop anew
    for _ in range(4):
        start(again, grid, rounds=1)
    assert len(JournalReader(tmp_path)) == 4


def test_what_a_further_start_returns_is_counted_from_it(tmp_path: Path) -> None:
    measured: list[int] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        measured.append(server_round)
        return MetricRecord({"accuracy": 0.1 * server_round})

    muster, grid, bare = quick(tmp_path, cohort_size=6), federation(), FedAvg()
    mine = theirs = Result(arrays=model())
    for number in range(1, 4):
        mine = muster.start(grid, mine.arrays, 1, timeout=10.0, evaluate_fn=evaluate)
        theirs = bare.start(grid, theirs.arrays, 1, timeout=10.0)
        assert set(mine.train_metrics_clientapp) == {1}
        assert mine.train_metrics_clientapp == theirs.train_metrics_clientapp
        assert mine.evaluate_metrics_clientapp == theirs.evaluate_metrics_clientapp
        by_server = {n: m["accuracy"] for n, m in mine.evaluate_metrics_serverapp.items()}
        assert by_server == {0: 0.1 * (number - 1), 1: 0.1 * number}
    assert measured == [0, 1, 1, 2, 2, 3]
    again = quick(tmp_path, cohort_size=6)  # after a crash, which gives each start its own round
    for number in range(1, 4):
        result = start(again, grid, rounds=1)
        assert result.evaluate_metrics_serverapp[1]["accuracy"] == 0.1 * number
        assert set(result.train_metrics_clientapp) == {1}
    assert result.train_metrics_clientapp == theirs.train_metrics_clientapp


def test_what_the_strategy_has_can_be_asked_of_muster(tmp_path: Path) -> None:
    class Noting(FedAvg):
        history = "kept"

    muster = quick(tmp_path, Noting())
    assert muster.history == "kept"
    assert muster.weighted_by_key == "num-examples"
    with pytest.raises(AttributeError, match="unheard_of"):
        _ = muster.unheard_of


def test_a_small_start_of_the_users_own_is_given_only_what_was_said(tmp_path: Path) -> None:
    def small_start(
        strategy: FedAvg, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int
    ) -> Result:
        for number in range(num_rounds):  # which counts from 0, and pushes and pulls itself
            messages = strategy.configure_train(number, initial_arrays, ConfigRecord(), grid)
            waiting = set(grid.push_messages(messages))
            replies: list[Message] = []
            while waiting:
                came = list(grid.pull_messages(waiting))
                waiting -= {reply.metadata.reply_to_message_id for reply in came}
                replies += came
            strategy.aggregate_train(number, replies)
        return Result()

    small: type[FedAvg] = type("Small", (FedAvg,), {"start": small_start})
    muster = quick(tmp_path, small())
    muster.start(grid=federation(), initial_arrays=model(), num_rounds=2)
    assert JournalReader(tmp_path).columns["num_completed"].tolist() == [3, 3]


def test_safa_fills_its_quota_and_learns_who_was_picked(tmp_path: Path) -> None:
    start(quick(tmp_path, policy=SAFA(), cohort_size=3), federation(), rounds=5)
    journal = JournalReader(tmp_path)
    assert (journal.columns["num_aggregated"] <= 3).all()
    assert (journal.columns["num_aggregated"] > 0).all()


def test_a_straggler_does_not_hold_up_evaluation(tmp_path: Path) -> None:
    grid = federation("abc")
    muster = quick(tmp_path, cohort_size=3, deadline_seconds=0.3)

    def slow_down(server_round: int, arrays: ArrayRecord) -> None:
        grid.nodes[0].delay_seconds = 60.0

    began = time.monotonic()
    start(muster, grid, rounds=3, evaluate_fn=slow_down)
    assert time.monotonic() - began < 20.0
    assert np.isfinite(JournalReader(tmp_path).columns["accuracy"]).all()


def test_a_round_killed_before_its_evaluation_is_evaluated_when_the_run_goes_on(
    tmp_path: Path,
) -> None:
    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round == 2 and not dying[0]:
            dying[0] = True
            raise KeyboardInterrupt
        return MetricRecord({"accuracy": 0.5})

    dying = [False]
    strategy = FedAvg(fraction_evaluate=0.0)
    with pytest.raises(KeyboardInterrupt):
        start(quick(tmp_path, strategy), federation(), 2, evaluate_fn=evaluate)
    assert np.isnan(JournalReader(tmp_path).columns["accuracy"]).tolist() == [False, True]
    start(quick(tmp_path, FedAvg(fraction_evaluate=0.0)), federation(), 2, evaluate_fn=evaluate)
    assert JournalReader(tmp_path).columns["accuracy"].tolist() == [0.5, 0.5]


def test_another_model_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    start(quick(tmp_path), federation())
    other = ArrayRecord({"v": Array(np.zeros(2))})
    with pytest.raises(StateError, match="another model"):
        quick(tmp_path).start(grid=federation(), initial_arrays=other, num_rounds=5, timeout=5.0)


class Folding(FedAvg):
    """Keeps one array in place of two."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        parts = [arrays[name].numpy().ravel() for name in sorted(arrays)]
        return ArrayRecord({"w": Array(np.concatenate(parts))}), metrics


def test_a_strategy_may_make_other_arrays_than_it_was_given(tmp_path: Path) -> None:
    start(quick(tmp_path, Folding()), federation(), rounds=1)
    result = start(quick(tmp_path, Folding()), federation(), rounds=2)
    again = start(quick(tmp_path, Folding()), federation(), rounds=3)
    assert (result.arrays["w"].shape, again.arrays["w"].shape) == ((4,), (4,))
    np.testing.assert_allclose(again.arrays["w"].numpy(), [0.875] * 4)
    go_on(quick(tmp_path, Folding()), again.arrays)  # those of its own making
    assert JournalReader(tmp_path).columns["num_completed"].tolist() == [3] * 4
    for other in (np.zeros(3), np.zeros((2, 2))):
        with pytest.raises(StateError, match="another model"):
            go_on(quick(tmp_path, Folding()), ArrayRecord({"w": Array(other)}))


def go_on(muster: Muster, arrays: ArrayRecord) -> Result:
    return muster.start(grid=federation(), initial_arrays=arrays, num_rounds=4, timeout=5.0)


class Loose(FedAvg):
    """Gives back dicts with whatever it computed, as Flower lets it."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        arrays, _ = super().aggregate_train(server_round, replies)
        return arrays, {"train_loss": np.float32(0.5), "seen": np.array([1, 2])}

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        return {"eval_acc": np.float32(0.25), "said": "well done", "loss": None, 7: np.int64(7)}


def test_a_strategy_may_give_back_any_dict_of_metrics(tmp_path: Path) -> None:
    start(quick(tmp_path, Loose()), federation(), rounds=2)
    assert JournalReader(tmp_path).columns["accuracy"].tolist() == [0.25, 0.25]
    result = start(quick(tmp_path, Loose()), federation(), rounds=3)
    for number in (1, 2, 3):
        metrics = result.train_metrics_clientapp[number]
        assert dict(metrics) == {"train_loss": 0.5, "seen": [1, 2]}
        told = result.evaluate_metrics_clientapp[number]
        assert dict(told) == {"eval_acc": 0.25, "said": "well done", "loss": None, "7": 7}


def test_evaluation_on_the_server_may_return_any_dict(tmp_path: Path) -> None:
    def evaluate(server_round: int, arrays: ArrayRecord) -> Any:
        return {"accuracy": np.float32(0.5), "per class": {"cat": np.float64(0.25)}}

    result = start(quick(tmp_path), federation(), rounds=1, evaluate_fn=evaluate)
    told = {"accuracy": 0.5, "per class": {"cat": 0.25}}
    assert result.evaluate_metrics_serverapp == {0: told, 1: told}


def test_a_metric_that_is_no_number_costs_nobody_its_place(tmp_path: Path) -> None:
    def train(message: Message, context: Context) -> Message:
        alone = context.node_config["client-id"] == "a"  # a client with one class has no AUC
        return trained(message, context, auc=np.nan if alone else 0.5)

    def evaluate(message: Message, context: Context) -> Message:
        reply = evaluated(message, context)
        reply.content.metric_records["metrics"]["auc"] = np.nan
        return reply

    app = ClientApp(mods=[ReportingMod()])
    app.train()(train)
    app.evaluate()(evaluate)
    grid = InProcessGrid(app, nodes("abc"))
    result = start(quick(tmp_path, policy=Oort()), grid, rounds=2)
    journal = JournalReader(tmp_path)
    assert journal.columns["num_completed"].tolist() == [3, 3]
    assert journal.columns["num_refused"].tolist() == [0, 0]
    assert np.isfinite(journal.columns["accuracy"]).all()
    assert np.isnan(result.evaluate_metrics_clientapp[2]["auc"])
    assert result.arrays["w"].numpy().tolist() == [0.75] * 3


def test_an_evaluation_whose_loss_is_no_number_does_not_count(tmp_path: Path) -> None:
    def evaluate(message: Message, context: Context) -> Message:
        reply = evaluated(message, context)
        if context.node_config["client-id"] == "a":
            reply.content.metric_records["metrics"]["eval_loss"] = np.nan
        return reply

    app = ClientApp(mods=[ReportingMod()])
    app.train()(trained)
    app.evaluate()(evaluate)
    result = start(quick(tmp_path), InProcessGrid(app, nodes("abc")), rounds=1)
    assert result.evaluate_metrics_clientapp[1]["eval_loss"] == 0.25


def test_of_a_strategy_for_one_node_at_a_time_the_policy_chooses_that_one(tmp_path: Path) -> None:
    cyclic = FedXgbCyclic(min_available_nodes=1)
    cyclic.min_train_nodes = 1
    start(quick(tmp_path, cyclic, cohort_size=1), federation("abc"), rounds=3)
    journal = JournalReader(tmp_path)
    assert [len(cohort) for cohort in journal.cohorts] == [1, 1, 1]
    assert journal.columns["num_completed"].tolist() == [1, 1, 1]


def test_a_folder_that_another_process_has_open_is_waited_for_and_then_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    muster = quick(tmp_path, wait_seconds=0.05)
    with (
        Journal(tmp_path),
        caplog.at_level(logging.INFO, "flwr"),
        pytest.raises(InUseError, match="`flwr stop` it"),
    ):
        start(muster, federation())
    assert "waiting until it ends, 0.05 s at most" in caplog.text


def test_a_model_that_is_not_finite_is_not_put_on_record(tmp_path: Path) -> None:
    class Diverging(FedAvg):
        def aggregate_train(
            self, server_round: int, replies: Any
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            return model(np.inf), None

    result = start(quick(tmp_path, Diverging()), federation(), rounds=1)
    assert result.arrays["w"].numpy().tolist() == [0.0, 0.0, 0.0]
    assert JournalReader(tmp_path).columns["num_aggregated"].tolist() == [0]


class Scaffold(FedAvg):
    """Two ArrayRecords in a reply, no metrics, and an aggregation of its own."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        models = [reply.content.array_records["arrays"]["w"].numpy() for reply in replies]
        mean = Array(np.asarray(np.mean(models, axis=0)))
        return ArrayRecord({"w": mean, "b": Array(np.zeros(1))}), None


@pytest.mark.parametrize("policy", ["random", "clustered-sampling:by=similarity"])
def test_strategies_of_ones_own_may_want_other_records(tmp_path: Path, policy: str) -> None:
    """Also before the model, whose changes some policies look at."""

    def train(message: Message, context: Context) -> Message:
        reply = trained(message, context)
        (arrays,) = reply.content.array_records.values()
        control = ArrayRecord({"w": Array(np.zeros((5, 2))), "b": Array(np.zeros(7))})
        return Message(RecordDict({"control": control, "arrays": arrays}), reply_to=message)

    muster = quick(tmp_path, Scaffold(fraction_evaluate=0.0), policy=policy)
    result = start(muster, federation(train=train))
    assert result.arrays["w"].numpy().tolist() == [0.875] * 3
    assert JournalReader(tmp_path).columns["num_completed"].tolist() == [3, 3, 3]


def test_a_model_that_the_app_changes_between_starts_counts(tmp_path: Path) -> None:
    muster = quick(tmp_path)
    grid = federation()
    first = start(muster, grid, rounds=1)
    assert first.arrays["w"].numpy().tolist() == [0.5] * 3
    muster.start(grid=grid, initial_arrays=model(7.0), num_rounds=1, timeout=10.0)
    assert JournalReader(tmp_path).columns["train_loss"][1] == 36.0  # (7 - 1)²


def test_a_strategy_that_chooses_again_is_refused(tmp_path: Path) -> None:
    class Half(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            return list(super().configure_train(server_round, arrays, config, grid))[:1]

    with pytest.raises(ConfigError, match=r"send to all of grid\.get_node_ids"):
        start(quick(tmp_path, Half()), federation())


def test_the_deadline_of_a_run_may_be_changed(tmp_path: Path) -> None:
    start(quick(tmp_path, deadline_seconds=5.0), federation(), rounds=1)
    start(quick(tmp_path, deadline_seconds=8.0), federation(), rounds=2)
    assert len(JournalReader(tmp_path)) == 2


@pytest.mark.parametrize("policy", ["bsfl", "pause", "random:by_data=true"])
def test_who_claims_all_the_data_is_taken_to_have_as_much_as_others(
    tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    def claimed(context: Context) -> int:
        return 2**62 if context.node_config["client-id"] == "f" else 10

    app = ClientApp(mods=[ReportingMod(num_samples=claimed)])
    app.train()(trained)
    app.evaluate()(evaluated)
    with caplog.at_level(logging.INFO, "flwr"):
        start(quick(tmp_path, policy=policy), InProcessGrid(app, nodes("abcdef")), rounds=8)
    assert caplog.text.count("f says that it has 4,611,686,018,427,387,904 samples") == 1
    journal = JournalReader(tmp_path)
    assert journal.clients["num_samples"].tolist() == [10] * 6
    chosen = np.bincount(np.concatenate(journal.cohorts), minlength=6)
    assert chosen[5] <= 5  # of 8 rounds; with all the data it would be in each


def test_over_selection_is_not_rounded_up_for_the_sake_of_a_billionth(tmp_path: Path) -> None:
    assert quick(tmp_path, cohort_size=100, over_selection=1.1).settings.num_to_ask == 110


def test_one_muster_is_enough(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a Muster already"):
        quick(tmp_path, quick(tmp_path))
    with pytest.raises(ConfigError, match="a Muster already"):
        quick(tmp_path, DifferentialPrivacyServerSideFixedClipping(quick(tmp_path), 1.0, 1.0, 3))


def test_who_does_not_evaluate_in_time_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def slowly(message: Message, context: Context) -> Message:
        if context.node_config["client-id"] == "d":
            grid.nodes[3].delay_seconds = 60.0
        return evaluated(message, context)

    app = ClientApp(mods=[ReportingMod()])
    app.train()(trained)
    app.evaluate()(slowly)
    grid = InProcessGrid(app, nodes("abcd"))
    with caplog.at_level(logging.INFO, "flwr"):
        start(quick(tmp_path, deadline_seconds=0.3), grid, rounds=1)
    assert re.search(r"1 nodes have not evaluated in time.*: d$", caplog.text, re.MULTILINE)


@pytest.mark.parametrize(
    ("policy", "cohort_size", "warned"),
    [(Random(), 4, 1), (Random(), 9, 1), (Random(), 3, 0), (AllClients(), 4, 0)],
)
def test_a_cohort_of_everybody_is_warned_of_once(
    policy: Policy[Any],
    cohort_size: int,
    warned: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    muster = quick(tmp_path, policy=policy, cohort_size=cohort_size, wait_seconds=0.1)
    start(muster, federation("abcd"), rounds=4)
    assert len([r for r in caplog.records if "num-supernodes" in r.getMessage()]) == warned


MINE = """
from dataclasses import dataclass
from typing import ClassVar

from fedmuster import Random

@dataclass(frozen=True, kw_only=True, slots=True)
class Mine(Random):
    name: ClassVar[str] = "mine"
    luck: float = 1.0
"""


def test_a_policy_may_be_named_with_settings_and_come_from_a_file(tmp_path: Path) -> None:
    assert quick(tmp_path, policy="bsfl:alpha=3").settings.policy == BSFL(alpha=3)
    (tmp_path / "mine.py").write_text(MINE)
    for rounds in (1, 3):  # the second continues the first
        muster = quick(tmp_path / "run", policy=f"{tmp_path}/mine.py:Mine:luck=2")
        start(muster, federation(), rounds=rounds)
    assert muster.settings.policy.name == "mine"
    assert len(JournalReader(tmp_path / "run")) == 3
