"""FLARE's FedOpt goes on after a restart with the same model, optimizer and schedule."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare.apis")  # "nvflare" is also the name of this folder
pytest.importorskip("torch")

import torch
from tests.nvflare.test_federation import opened

from fedmuster.nvflare import MusterFedOpt, MusterPTFedAvg
from fedmuster.nvflare.plain_values import pack, unpack


def fed_opt(folder: Path, fill: float) -> Any:
    model = torch.nn.Linear(3, 2)
    workflow: Any = MusterFedOpt(num_clients=1, num_rounds=9, source_model=model, device="cpu")
    torch.nn.init.constant_(model.weight, fill)
    torch.nn.init.constant_(model.bias, fill)
    workflow.torch_model = model
    workflow.optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    workflow.lr_scheduler = torch.optim.lr_scheduler.StepLR(workflow.optimizer, 2, gamma=0.5)
    workflow._federation = opened(folder)
    return workflow


def step(workflow: Any, number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    change = {"weight": rng.normal(size=(2, 3)), "bias": rng.normal(size=2)}
    changes = {name: values.astype(np.float32) for name, values in change.items()}
    weights, _ = workflow.optimizer_update(changes)
    return {name: value.numpy().copy() for name, value in weights.items()}


def test_optimizer_and_schedule_go_on(tmp_path: Path) -> None:
    first = fed_opt(tmp_path / "first", fill=0.0)
    step(first, 1)
    model = step(first, 2)
    tree, arrays = pack(first.workflow_state())
    state = unpack(json.loads(json.dumps(tree)), arrays)
    second = fed_opt(tmp_path / "second", fill=9.0)
    second._federation.model = model
    second.load_workflow_state(state)
    for number in (3, 4, 5):
        expected, found = step(first, number), step(second, number)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    for workflow in (first, second):
        workflow._federation.close()


def test_what_a_workflow_inherits() -> None:
    names = [kind.__name__ for kind in MusterPTFedAvg.__mro__]
    order = ["MusterFedAvg", "MusterController", "PTFedAvg", "FedAvg", "BaseFedAvg"]
    assert [name for name in names if name in order] == order
    assert set(MusterFedOpt.remembers) == {
        "num_fl_rounds_without_improvement",
        "best_target_metric_value",
    }
