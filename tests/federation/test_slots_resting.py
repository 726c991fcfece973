"""With Pisces' pace a client is not asked while the server holds its answer."""

from typing import Any

from fedmuster.federation import Federation, Simulation
from fedmuster.federation.triggers import Buffer, Pace, Trigger
from fedmuster.worlds import BSFLRates


def repeated(trigger: Trigger) -> int:
    """How often a client is asked again at the moment in which its answer enters the model."""
    way = Federation(concurrency=5, trigger=trigger)
    world = BSFLRates(num_clients=12)
    simulation: Simulation[Any] = Simulation("random", world, seed=3, federation=way)
    entered, asked, now = set[tuple[int, float]](), set[tuple[int, float]](), 0.0
    for _ in range(300):
        row = simulation.step()
        now += row.seconds
        assert row.jobs is not None
        used = row.jobs.client[row.jobs.used].tolist()
        entered |= {(client, round(now, 9)) for client in used}
        times = row.jobs.asked_at_seconds.round(9).tolist()
        asked |= set(zip(row.jobs.client.tolist(), times, strict=True))
    return len(asked & entered)


def test_contributors_rest_with_pace_alone() -> None:
    assert repeated(Pace()) == 0
    assert repeated(Buffer(answers=2)) > 0
