"""A job of FLARE whose clients fedmuster chooses, run in FLARE's simulator."""

import argparse
from pathlib import Path

import numpy as np
from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner

from fedmuster.nvflare import MusterFedAvg  # from nvflare.app_common.workflows.fedavg import FedAvg

HERE = Path(__file__).parent


def main() -> None:
    """Make the job, and run or export it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("runs/quickstart"))
    parser.add_argument("--policy", default="tempo")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--export", help="write the job here, for a real federation")
    options = parser.parse_args()
    job = FedJob(name="quickstart", min_clients=2)
    persistor = NPModelPersistor(model=np.zeros((65, 10)).tolist())
    persistor_id = job.to_server(persistor, id="persistor")
    controller = MusterFedAvg(  # FedAvg(
        num_clients=2,
        num_rounds=options.rounds,
        persistor_id=persistor_id,
        policy=options.policy,  # these three lines are new
        folder=str(options.folder.absolute()),
        deadline_seconds=60,
    )
    job.to_server(controller)
    job.to_clients(
        ScriptRunner(
            script=str(HERE / "train.py"),
            script_args=f"--clients {options.clients}",
            framework=FrameworkType.NUMPY,
        )
    )
    if options.export:
        job.export_job(options.export)
    else:
        count = options.clients
        workspace = f"{options.folder.absolute()}-workspace"  # emptied at each start
        job.simulator_run(workspace, n_clients=count, threads=count)


if __name__ == "__main__":
    main()
