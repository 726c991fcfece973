"""Worlds without rounds: the luck of each job, who is there, how jobs end, and runs that must."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.watching import wrap
from tests.federation.row_values import all_jobs, play
from tests.federation.silent_world import Silent

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Selection, Truth
from fedmuster.federation import Federation, JobRows, Simulation
from fedmuster.federation.triggers import Interval
from fedmuster.worlds import (
    ActivityTrace,
    Bernoulli,
    BSFLGroups,
    BSFLRates,
    ContextualWorld,
    DeviceWorld,
    EdgeNetwork,
    LatencyWorld,
    LTECell,
    Markov,
    OnOff,
    RandomWaypoint,
    TraceWorld,
)
from fedmuster.worlds.layout import Alike
from fedmuster.worlds.world import World

FEW = Federation(concurrency=5, buffer=2)


def start(
    world: World, policy: Any = "random", federation: Federation = FEW, seed: int = 4
) -> Simulation[Any]:
    return Simulation(policy, world, seed=seed, federation=federation)


def jobs_of(simulation: Simulation[Any], count: int = 150) -> JobRows:
    """The jobs that have ended, in the order in which they were asked."""
    jobs = all_jobs(play(simulation, count))
    order = np.lexsort((jobs.client, jobs.decision))
    return JobRows(**{name: values[order] for name, values in jobs.arrays().items()})


def durations(jobs: JobRows) -> dict[int, list[float]]:
    """Of each client, how long its first, second, … job took; infinite without an answer."""
    seconds = np.where(jobs.answered, jobs.ended_at_seconds - jobs.asked_at_seconds, np.inf)
    found: defaultdict[int, list[float]] = defaultdict(list)
    for client, took in zip(jobs.client.tolist(), seconds.tolist(), strict=True):
        found[client].append(took)
    return found


def require_no_free_slot(jobs: JobRows) -> None:
    """Whenever a job ended, another was asked; not where that one may have no end on record."""
    longest = (jobs.ended_at_seconds - jobs.asked_at_seconds).max()
    ended = jobs.ended_at_seconds[jobs.ended_at_seconds < jobs.ended_at_seconds.max() - longest]
    assert len(ended) > 100
    assert np.isin(ended, jobs.asked_at_seconds).all()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Client k takes k + 1 + t / 10 seconds in round t of 5; client 2 is missing in 1, 3 and 4."""
    path = tmp_path / "latency.csv"
    rows = [
        (client, number, client + 1 + number / 10)
        for client in range(6)
        for number in range(1, 6)
        if client != 2 or number in (2, 5)
    ]
    lines = ["client,round,latency_seconds", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    "world",
    [
        LatencyWorld(num_clients=12, cohort_size=4, dropout=0.1, deadline_seconds=6.0),
        ContextualWorld(num_clients=12, cohort_size=4),
        DeviceWorld(num_clients=12, cohort_size=4, availability=OnOff(share=0.5)),
    ],
    ids=lambda world: str(world.name),
)
def test_a_clients_nth_job_takes_equally_long_whoever_asks_and_whenever(world: World) -> None:
    policies = ("random", "oort")
    federations = (FEW, Federation(concurrency=3, trigger=Interval(seconds=4.0)))
    found = [
        durations(jobs_of(start(world, policy, federation)))
        for policy, federation in zip(policies, federations, strict=True)
    ]
    compared = 0
    for client in found[0].keys() & found[1].keys():
        both = min(len(each[client]) for each in found) - 1
        compared += both
        one, two = (each[client][:both] for each in found)
        np.testing.assert_allclose(one, two, rtol=1e-6)
    assert compared > 50


def test_a_replayed_trace_passes_over_rounds_in_which_a_client_is_missing(trace: Path) -> None:
    world = TraceWorld(path=str(trace), cohort_size=3)
    found = durations(jobs_of(start(world, federation=Federation(concurrency=3, buffer=1))))
    np.testing.assert_allclose(found[0][:7], [1.1, 1.2, 1.3, 1.4, 1.5, 1.1, 1.2])
    np.testing.assert_allclose(found[2][:5], [3.2, 3.5, 3.2, 3.5, 3.2])


def test_a_bootstrapped_trace_draws_from_a_clients_own_rows(trace: Path) -> None:
    world = TraceWorld(path=str(trace), cohort_size=3, mode="bootstrap")
    found = durations(jobs_of(start(world, federation=Federation(concurrency=3, buffer=1))))
    for client, numbers in ((0, [1, 2, 3, 4, 5]), (2, [2, 5])):
        drawn = np.round(10 * (np.array(found[client]) - client - 1)).astype(int)
        assert set(drawn.tolist()) == set(numbers)


def test_a_job_is_given_up_at_the_deadline_and_its_slot_is_filled_at_once() -> None:
    world = BSFLGroups(num_clients=20, dropout=0.25, deadline_seconds=0.7)
    jobs = jobs_of(start(world), count=200)
    late = ~jobs.answered
    assert 0.2 < late.mean() < 0.6
    np.testing.assert_array_equal(jobs.ended_at_seconds[late], jobs.asked_at_seconds[late] + 0.7)
    in_time = jobs.ended_at_seconds[~late] - jobs.asked_at_seconds[~late]
    assert in_time.max() <= 0.7 + 1e-9
    assert not jobs.used[late].any()
    require_no_free_slot(jobs)
    again = {client: took for client, took in durations(jobs).items() if np.inf in took[:-1]}
    assert len(again) > 10  # clients that were asked again after they had failed


def test_no_slot_is_free_while_the_server_waits_for_its_interval() -> None:
    """Also when the next aggregation comes before the next answer."""
    world = BSFLRates(num_clients=20)
    jobs = jobs_of(start(world, federation=Federation(concurrency=2, trigger=Interval(seconds=9))))
    require_no_free_slot(jobs)


@pytest.mark.parametrize("law", [Bernoulli(probability=0.3), Markov(up=0.2, down=0.4)])
@pytest.mark.parametrize("deadline", [None, 3.0])
def test_who_is_there_by_rounds_is_drawn_anew_after_each_deadline_or_usual_job(
    law: Bernoulli | Markov, deadline: float | None
) -> None:
    world = LatencyWorld(num_clients=15, cohort_size=4, availability=law, deadline_seconds=deadline)
    jobs, run = jobs_of(start(world)), world.start(4)
    tick = deadline or float(np.median(run.typical_latency_seconds()))
    for client, asked in zip(jobs.client.tolist(), jobs.asked_at_seconds.tolist(), strict=True):
        assert run.availability.at(int(asked / tick) + 1, asked)[client]
    assert len(set(jobs.client.tolist())) == 15
    assert jobs.asked_at_seconds.max() > 10 * tick


def test_who_is_there_by_the_clock() -> None:
    world = DeviceWorld(
        num_clients=12, cohort_size=4, availability=OnOff(share=0.3, period_seconds=40_000.0)
    )
    jobs, run = jobs_of(start(world)), world.start(4)
    for client, asked in zip(jobs.client.tolist(), jobs.asked_at_seconds.tolist(), strict=True):
        assert run.availability.at(1, asked)[client]
    assert jobs.asked_at_seconds.max() > 10_000


def test_a_client_that_comes_while_others_work_is_asked_within_a_usual_job(tmp_path: Path) -> None:
    """Client 0 is there from the beginning and works for long; 1 and 2 come after 10 seconds."""
    latency, activity = tmp_path / "latency.csv", tmp_path / "activity.csv"
    latency.write_text("client,round,latency_seconds\n0,1,1000\n1,1,1\n2,1,1\n")
    activity.write_text(
        "client,start_seconds,end_seconds,period_seconds\n0,0,9999,9999\n1,10,9999,9999\n"
        "2,10,9999,9999\n"
    )
    availability = ActivityTrace(path=str(activity))
    world = TraceWorld(path=str(latency), cohort_size=3, availability=availability)
    jobs = jobs_of(start(world, federation=Federation(concurrency=3, buffer=1)), count=20)
    assert jobs.asked_at_seconds.min() == pytest.approx(10, abs=1.0)  # of those that have ended
    assert jobs.ended_at_seconds.max() < 1000


GONE: dict[str, tuple[World, Federation]] = {
    "every job takes longer than the deadline": (
        BSFLRates(num_clients=10, deadline_seconds=0.01),
        FEW,
    ),
    "everybody drops out": (BSFLRates(num_clients=10, deadline_seconds=3.0, dropout=1.0), FEW),
    "uploads that never end in time": (
        LTECell(num_clients=8, deadline_seconds=0.5, data=Alike()),
        FEW,
    ),
    "nobody is ever there": (
        BSFLRates(num_clients=10, availability=Bernoulli(probability=0.0)),
        FEW,
    ),
    "no edge can pay anybody": (
        EdgeNetwork(num_clients=8, num_edges=2, budget=0.1),
        Federation(concurrency=3, buffer=2),
    ),
}


@pytest.mark.parametrize("what", GONE)
def test_a_run_of_clients_that_never_answer_ends_with_a_message(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmuster.federation.slots._MOST_WAKES", 2000)
    monkeypatch.setattr("fedmuster.federation.slots._MOST_UNANSWERED", 500)
    world, federation = GONE[what]
    simulation = start(world, federation=federation)
    rows = play(simulation, 10)
    assert simulation.ending is not None
    assert len(rows) < 5
    assert sum(row.num_completed for row in rows) == 0


@pytest.mark.parametrize("inner", [BSFLRates(num_clients=6), LTECell(num_clients=6, data=Alike())])
def test_a_job_without_an_end_is_refused(inner: World) -> None:
    simulation = start(Silent(inner=inner), federation=Federation(concurrency=3, buffer=1))
    with pytest.raises(ConfigError) as caught:
        play(simulation, 50)
    assert caught.value.key == ("world", "deadline_seconds")


def test_uploads_queue_in_the_order_in_which_clients_are_ready() -> None:
    """Against a plain loop over the jobs by the time at which they have trained."""
    world = LTECell(num_clients=12, data=Alike())
    run = world.start(4)
    jobs = jobs_of(start(world))
    times: defaultdict[int, int] = defaultdict(int)
    ready = []
    for client, asked, ended in zip(
        jobs.client.tolist(),
        jobs.asked_at_seconds.tolist(),
        jobs.ended_at_seconds.tolist(),
        strict=True,
    ):
        times[client] += 1
        signals = run.draw(times[client]).signals
        compute, upload = (
            float(signals[f"{stage}_seconds"][client]) for stage in ("compute", "upload")
        )
        ready.append((asked + compute, upload, ended))
    ready.sort()
    last, free, waited = max(ended for *_, ended in ready), 0.0, 0
    for begins, upload, ended in ready:
        if begins > last - 1000.0:  # jobs that are not over may be before these in the queue
            break
        waited += free > begins
        free = max(begins, free) + upload
        assert ended == pytest.approx(free)
    assert waited > 50


def test_an_upload_that_misses_the_deadline_leaves_the_channel_to_others() -> None:
    world = LTECell(num_clients=12, deadline_seconds=250.0, data=Alike())
    jobs = jobs_of(start(world))
    late = ~jobs.answered
    assert 0.1 < late.mean() < 0.9
    np.testing.assert_array_equal(jobs.ended_at_seconds[late], jobs.asked_at_seconds[late] + 250.0)


def views_of(simulation: Simulation[Any], count: int) -> list[dict[str, Any]]:
    """What the selector was told at each decision, the number of each client's next job, and the
    clients that it chose."""
    seen: list[dict[str, Any]] = []
    job_of = np.ones(simulation.world.problem.num_clients, dtype=np.int64)

    def select(original: Callable[..., Selection], **told: Any) -> Selection:
        busy = simulation.selector.tickets.busy.copy()
        selection = original(**told)
        now = {"busy": busy, "job_of": job_of.copy(), "chosen": selection}
        if told["features"] is not None:
            now["features"] = told["features"].copy()
        seen.append(told | now)
        job_of[selection.clients] += 1
        return selection

    wrap(simulation.selector, "select", select)
    play(simulation, count)
    return seen


def test_features_are_those_of_each_clients_next_job() -> None:
    world = ContextualWorld(num_clients=10, cohort_size=3)
    run = world.start(4)
    views = views_of(start(world, "rbcs-f"), 40)
    assert len({number for view in views for number in view["job_of"].tolist()}) > 4
    for view in views:
        for client, number in enumerate(view["job_of"].tolist()):
            features = run.draw(number).features
            assert features is not None
            np.testing.assert_array_equal(view["features"][client], features[client])


@pytest.mark.parametrize("policy", ["genie", "fastest"])
def test_oracles_are_told_the_truth_of_each_clients_next_job(policy: str) -> None:
    world = ContextualWorld(num_clients=10, cohort_size=3)
    run = world.start(4)
    views = views_of(start(world, policy), 40)
    for view in views[::5]:
        truth: Truth = view["truth"]
        for client, number in enumerate(view["job_of"].tolist()):
            expected = run.draw(number).expectation()
            for name in ("mean_latency_seconds", "mean_speed"):
                assert getattr(truth, name)[client] == getattr(expected, name)[client]
    if policy == "fastest":
        for view in views:
            means, chosen = view["truth"].mean_latency_seconds, view["chosen"].clients
            others = view["available"] & ~view["busy"]
            others[chosen] = False
            assert means[chosen].max() <= means[others].min()


def test_no_other_policy_is_told_the_truth() -> None:
    assert all(view["truth"] is None for view in views_of(start(BSFLRates()), 5))


def test_worlds_that_need_rounds_are_refused() -> None:
    for world in (
        EdgeNetwork(num_clients=10, mobility=RandomWaypoint()),
        BSFLRates(over_selection=1.5),
    ):
        with pytest.raises(ConfigError) as caught:
            start(world)
        assert caught.value.key == ("federation",)
