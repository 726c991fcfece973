"""The recipe of docs/own-loop.md, in a loop of threads, without rounds, and in pfl."""

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.test_readme import blocks

from fedmuster import Problem, Selector

NAMES = ("ann", "bob", "cem", "dot", "eve")


@pytest.fixture
def recipe() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "recipe"}
    for block in blocks("python", "docs/own-loop.md"):
        exec(block, names)
    return names


class Threads:
    """A server whose clients are threads: one never answers in time, one sends NaN."""

    def __init__(self) -> None:
        self.model = np.zeros(3)

    def names(self) -> tuple[str, ...]:
        return NAMES

    def online(self) -> tuple[str, ...]:
        return NAMES[:4]  # eve is away

    def answers(self, chosen: list[str], within_seconds: float) -> Any:
        pool = ThreadPoolExecutor()
        futures = [pool.submit(self._train, name) for name in chosen]
        try:
            for future in as_completed(futures, timeout=within_seconds):
                yield future.result()
        except TooLate:
            pass
        finally:
            pool.shutdown(wait=False)

    def _train(self, name: str) -> tuple[str, Any, float]:
        if name == "ann":
            time.sleep(2.0)
        update = np.full(3, np.nan) if name == "bob" else 0.5 * (1.0 - self.model)
        return name, update, float(np.abs(1.0 - self.model).mean())


def test_a_loop_of_threads(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = Threads()
    chooser = recipe["train"](server, rounds=12, deadline_seconds=0.3)
    assert np.abs(1.0 - server.model).max() < 0.1
    assert chooser.selector.round == 13
    assert not chooser.selector.refused
    restored: Selector[Any] = Selector.restore("selector.npz", "tempo")
    again, on = restored.select(), chooser.selector.select()
    assert again.clients.tolist() == on.clients.tolist()


def test_failures_are_news(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chooser = recipe["Chooser"](NAMES, cohort_size=2, policy="bsfl")
    asked = dict.fromkeys(NAMES, 0)
    for _ in range(40):
        chosen = chooser.ask(online=NAMES[:4])
        for name in chosen:
            asked[name] += 1
            if name != "ann":
                chooser.answered(name, 1.0)
        chooser.close()
    assert asked["eve"] == 0
    assert asked["ann"] < min(asked[name] for name in ("bob", "cem", "dot"))


def test_without_rounds(recipe: dict[str, Any]) -> None:
    selector: Selector[Any] = Selector("tempo", Problem(num_clients=4, cohort_size=2), seed=1)
    everyone = np.ones(4, dtype=np.bool_)
    first, ticket = recipe["ask_one"](selector, everyone)
    second, other = recipe["ask_one"](selector, everyone)
    assert first != second
    assert recipe["answered_one"](selector, second, other, 0.5, 1.0).accepted == 1
    assert selector.give_up([ticket]).not_completed.tolist() == [first]
    late = recipe["answered_one"](selector, first, ticket, 9.0, 1.0)
    assert late.accepted == 0
    assert late.refused


def _pfl(chosen: "multiprocessing.Queue[Any]") -> None:
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset

    recipe: dict[str, Any] = {"__name__": "recipe"}
    for block in blocks("python", "docs/own-loop.md"):
        exec(block, recipe)
    chooser = recipe["Chooser"](NAMES, cohort_size=2, policy="bsfl", seed=3)
    twin = recipe["Chooser"](NAMES, cohort_size=2, policy="bsfl", seed=3)
    dataset = FederatedDataset(
        lambda user: Dataset(raw_data=[np.ones(2)], user_id=user), recipe["PolicySampler"](chooser)
    )
    for _ in range(6):
        users = [user.user_id for user, _ in dataset.get_cohort(2)]
        expected = twin.ask()
        for each in (chooser, twin):
            each.began = time.monotonic() - 1.0  # the same times for both
            for user in users:
                each.answers[each.number[user]] = (0.1 + each.number[user], 1.0)
            each.close()
        chosen.put((users, expected))
    chosen.put(None)


@pytest.mark.slow
def test_pfl_draws_the_cohorts_of_the_policy() -> None:
    pytest.importorskip("pfl")
    context = multiprocessing.get_context("spawn")  # pfl sets up its process when it is imported
    chosen: multiprocessing.Queue[Any] = context.Queue()
    process = context.Process(target=_pfl, args=(chosen,), name="MainProcess")
    process.start()
    rounds = list(iter(lambda: chosen.get(timeout=300), None))
    process.join(timeout=30)
    assert len(rounds) == 6
    for users, expected in rounds:
        assert users == expected
