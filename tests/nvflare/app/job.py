"""Runs a small job of FLARE in its simulator: ``python job.py WORKSPACE '{"folder": …}'``."""

import json
import sys
from pathlib import Path
from typing import Any

from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner

import fedmuster.nvflare


def main() -> int:
    workspace, settings = sys.argv[1], json.loads(sys.argv[2])
    clients = settings.pop("clients", 4)
    script_args = settings.pop("script_args", "")
    private = settings.pop("private", None)
    workflow = getattr(fedmuster.nvflare, settings.pop("workflow", "MusterFedAvg"))
    job = FedJob(name="small", min_clients=1)
    persistor: Any = NPModelPersistor(model=[[0.0, 0.0], [0.0, 0.0]])
    persistor_id = job.to_server(persistor, id="persistor")
    job.to_server(workflow(persistor_id=persistor_id, **settings))
    script = str(Path(__file__).with_name("train.py"))
    job.to_clients(
        ScriptRunner(script=script, script_args=script_args, framework=FrameworkType.NUMPY)
    )
    if private is not None:
        job.to_clients(fedmuster.nvflare.PrivateFilter(**private), tasks=["train"])
    return int(job.simulator_run(workspace, n_clients=clients, threads=clients) or 0)


if __name__ == "__main__":
    sys.exit(main())
