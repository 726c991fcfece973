"""What FLARE writes into a job: names of classes and their arguments."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare.apis")  # "nvflare" is also the name of this folder

from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.app_common.workflows.cyclic import Cyclic
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.api import FedJob

from fedmuster.core.errors import ConfigError
from fedmuster.nvflare import MusterFedAvg, MusterFedBuff, MusterScaffold, choose_clients

TRAIN = str(Path(__file__).with_name("app") / "train.py")


def exported(job: FedJob, folder: Path) -> list[dict[str, Any]]:
    job.export_job(str(folder))
    (config,) = folder.rglob("config_fed_server.json")
    assert not list(folder.rglob("fedmuster"))  # it is installed on the server
    workflows: list[dict[str, Any]] = json.loads(config.read_text())["workflows"]
    return workflows


@pytest.mark.parametrize(
    ("workflow", "more"),
    [
        (MusterFedAvg, {"stop_cond": "accuracy >= 80"}),
        (MusterScaffold, {}),
        (MusterFedBuff, {"buffer": 2, "staleness": "hinge:grace=2"}),
    ],
)
def test_a_job_keeps_all_settings(tmp_path: Path, workflow: Any, more: dict[str, Any]) -> None:
    settings = {
        "num_clients": 7,
        "num_rounds": 9,
        "policy": "bsfl:alpha=3.0",
        "folder": "/runs/mine",
        "seed": 5,
        "deadline_seconds": None,
        "over_selection": 1.5,
        "wait_seconds": 7.0,
        "pull_seconds": 0.5,
        **more,
    }
    job = FedJob(name="job", min_clients=1)
    job.to_server(workflow(**settings))
    (written,) = exported(job, tmp_path)
    assert settings.items() <= written["args"].items()
    assert written["path"] == f"{workflow.__module__}.{workflow.__name__}"
    assert vars(workflow(**written["args"])).keys() == vars(workflow(**settings)).keys()


def test_a_recipe_in_one_line(tmp_path: Path) -> None:
    recipe = NumpyFedAvgRecipe(
        name="small", min_clients=3, num_rounds=4, model=[[0.0, 0.0]], train_script=TRAIN
    )
    choose_clients(recipe, num_clients=2, policy="bsfl", folder="/runs/mine")
    recipe.export(str(tmp_path))
    (config,) = tmp_path.rglob("config_fed_server.json")
    (written,) = json.loads(config.read_text())["workflows"]
    assert written["path"] == "fedmuster.nvflare.workflows.MusterFedAvg"
    expected = {"num_clients": 2, "num_rounds": 4, "policy": "bsfl", "folder": "/runs/mine"}
    assert expected.items() <= written["args"].items()


def test_a_job_that_is_made_keeps_its_arguments(tmp_path: Path) -> None:
    job = FedJob(name="job", min_clients=1)
    job.to_server(FedAvg(num_clients=5, num_rounds=6, task_name="fit", persistor_id="mine"))
    choose_clients(job, policy="oort")
    (written,) = exported(job, tmp_path)
    expected = {"num_clients": 5, "num_rounds": 6, "task_name": "fit", "persistor_id": "mine"}
    assert {**expected, "policy": "oort"}.items() <= written["args"].items()


def test_what_cannot_be_chosen_for() -> None:
    job = FedJob(name="job", min_clients=1)
    with pytest.raises(ConfigError):
        choose_clients(job, policy="tempo")
    job.to_server(Cyclic(num_rounds=2))
    with pytest.raises(ConfigError, match="Cyclic"):
        choose_clients(job, policy="tempo")


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "no-such-policy"},
        {"policy": "oracle"},
        {"num_clients": 0},
        {"deadline_seconds": -1},
        {"over_selection": 0.0},
    ],
)
def test_mistakes_are_told_where_the_job_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MusterFedAvg(**{"num_clients": 2, "num_rounds": 2, **wrong})


def test_a_policy_as_an_object_is_refused() -> None:
    from fedmuster.policies import BSFL

    policy: Any = BSFL(alpha=3.0)
    with pytest.raises(ConfigError, match="bsfl"):
        MusterFedAvg(num_clients=2, num_rounds=2, policy=policy)


@pytest.mark.parametrize(
    "wrong",
    [
        {"buffer": 3},
        {"buffer": 0},
        {"server_rate": 0.0},
        {"staleness": "refl"},
        {"staleness": "no-such-rule"},
        {"policy": "naive-mab-cs"},
    ],
)
def test_fedbuff_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MusterFedBuff(**{"num_clients": 2, "num_rounds": 2, "buffer": 1, **wrong})
