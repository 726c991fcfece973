"""Journals written by hand, so that a report on them can be checked by hand."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmuster import POLICIES, Random
from fedmuster.bandits.rewards import CohortReward
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.experiments.journal import Journal
from fedmuster.experiments.run import prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Checkpoint, EdgeRow, Federation, JobRows, RoundRow
from fedmuster.privacy.budget import Privacy, PrivacyRow
from fedmuster.training.trainer import LearningRow
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLRates
from fedmuster.worlds.world import World

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

WORLD = BSFLRates(num_clients=4, cohort_size=2)


class WriteRun(Protocol):
    def __call__(
        self,
        label: str = ...,
        seed: int = ...,
        *,
        seconds: Sequence[float] = ...,
        regret: Sequence[float] | None = ...,
        cohorts: Sequence[Sequence[int]] | None = ...,
        num_completed: int = ...,
        planned: int | None = ...,
        folder: Path | None = ...,
        world: World = ...,
        reward: CohortReward | EdgeUtility | None = ...,
        policy: Policy[Any] | None = ...,
        loss: Sequence[float] | None = ...,
        accuracy: Sequence[float] | None = ...,
        rejected: Mapping[int, Sequence[int]] = ...,
        horizon: float | None = ...,
        clients: Mapping[str, NDArray[Any]] = ...,
        versions: Mapping[str, str] = ...,
        spent: Sequence[float] | None = ...,
        privacy: Privacy | None = ...,
        ending: str | None = ...,
        scores: Mapping[int, Mapping[str, FloatArray]] = ...,
        network: Sequence[EdgeRow] | None = ...,
        jobs: Sequence[JobRows] | None = ...,
    ) -> Path: ...


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes one run of a test."""
    return _writer(tmp_path)


@pytest.fixture(scope="module")
def write_shared_run(tmp_path_factory: pytest.TempPathFactory) -> WriteRun:
    """Writes one run for all tests of a file: no test may change it."""
    return _writer(tmp_path_factory.mktemp("shared"))


def _writer(base: Path) -> WriteRun:
    """Clients 0 and 1 are the fast group, client 3 is the slowest.

    With a loss, a model was trained; NaN in the rounds that were not evaluated. With privacy and
    nothing spent, it is one of the policies without. ``scores`` are by round; say who is
    ``watched`` among ``clients``. With ``jobs`` the run has no rounds, and two slots.
    """

    def write(
        label: str = "bsfl",
        seed: int = 0,
        *,
        seconds: Sequence[float] = (1.0, 2.0, 3.0),
        regret: Sequence[float] | None = None,
        cohorts: Sequence[Sequence[int]] | None = None,
        num_completed: int = 2,
        planned: int | None = None,
        folder: Path | None = None,
        world: World = WORLD,
        reward: CohortReward | EdgeUtility | None = None,
        policy: Policy[Any] | None = None,
        loss: Sequence[float] | None = None,
        accuracy: Sequence[float] | None = None,
        rejected: Mapping[int, Sequence[int]] = MappingProxyType({}),
        horizon: float | None = None,
        clients: Mapping[str, NDArray[Any]] = MappingProxyType({}),
        versions: Mapping[str, str] = MappingProxyType({}),
        spent: Sequence[float] | None = None,
        privacy: Privacy | None = None,
        ending: str | None = None,
        scores: Mapping[int, Mapping[str, FloatArray]] = MappingProxyType({}),
        network: Sequence[EdgeRow] | None = None,
        jobs: Sequence[JobRows] | None = None,
    ) -> Path:
        where = base / label / f"seed-{seed}" if folder is None else folder
        kind = POLICIES.get(label, Random)
        prepare(
            where,
            Experiment(
                policies={label: kind() if policy is None else policy},
                world=world,
                rounds=planned or (1000 if horizon else len(seconds) or 1),
                seeds=(seed,),
                reward=reward,
                regret=regret is not None,
                training=None if loss is None else Training(),
                seconds=horizon,
                privacy=privacy,
                unprotected=frozenset([label] if privacy is not None and spent is None else []),
                federation=None if jobs is None else Federation(concurrency=2, buffer=1),
            ),
        )
        chosen = [[0, 1]] * len(seconds) if cohorts is None else cohorts
        if jobs is not None:
            chosen = [row.client.tolist() for row in jobs]
        rows = [
            RoundRow(
                round=1 + index,
                seconds=duration,
                reward=np.nan if regret is None else 10.0 - regret[index],
                regret=np.nan if regret is None else regret[index],
                num_available=4,
                num_completed=num_completed,
                num_refused=0,
                clients=np.array(chosen[index], dtype=np.int64),
                learning=LearningRow(
                    loss=np.nan if loss is None else loss[index],
                    accuracy=np.nan if accuracy is None else accuracy[index],
                    train_loss=np.nan if loss is None else loss[index] + 0.5,
                    num_aggregated=0 if loss is None else len(chosen[index]),
                    rejected=np.array(rejected.get(1 + index, ()), dtype=np.int64),
                ),
                privacy=PrivacyRow()
                if spent is None
                else PrivacyRow(
                    spent_max=spent[index], spent_mean=spent[index] / 2, num_exhausted=index
                ),
                scores=scores.get(1 + index),
                network=None if network is None else network[index],
                jobs=None if jobs is None else jobs[index],
            )
            for index, duration in enumerate(seconds)
        ]
        with Journal(where) as journal:
            journal.begin(
                dict(versions),
                {
                    "group": np.array([0, 0, 1, 1]),
                    "typical_latency_seconds": np.array([0.1, 0.3, 0.8, 1.0]),
                    "cohort_size": np.array(2),
                    **clients,
                },
            )
            journal.append(
                rows,
                Checkpoint(
                    round=len(rows),
                    elapsed_seconds=sum(seconds),
                    selector=b"",
                    judge=None,
                    trainer=None,
                    budget=None,
                ),
                ending=ending,
            )
        return where

    return write


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Chrome"]:
    """One browser for all tests."""
    from selenium import webdriver
    from tests.report.browser import FLAGS

    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "no chromium and chromedriver: apt install chromium chromium-driver"
        if os.environ.get("FEDMUSTER_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()
