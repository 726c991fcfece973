"""Flower apps of many styles, as folders: what people bring to ``fedmuster flower check``."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

Files = Mapping[str, str]

MANIFEST = """\
[project]
name = "small"
version = "1.0.0"
description = "a small app"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.39", "fedmuster[flower]"]

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "small.server_app:app"
clientapp = "small.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 3
fraction-train = 0.5

[tool.flwr.federations]
default = "local"

[tool.flwr.federations.local]
options.num-supernodes = 10
"""

CLIENT = '''\
"""A ClientApp that moves the model towards its partition's number."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    goal = float(context.node_config["partition-id"])
    metrics = {"train_loss": float(np.abs(weights - goal).mean()), "num-examples": 10}
    reply = {"arrays": ArrayRecord([(weights + goal) / 2]), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(reply), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"eval_acc": 0.5, "num-examples": 10})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
'''
REPORTING_CLIENT = CLIENT.replace(
    "app = ClientApp()",
    "from fedmuster.flower import ReportingMod\n\napp = ClientApp(mods=[ReportingMod()])",
)

SERVER = '''\
"""A ServerApp in the style of Flower's quickstart."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    fraction_train: float = context.run_config["fraction-train"]
    num_rounds = int(context.run_config["num-server-rounds"])
    arrays = ArrayRecord([np.zeros(4)])
    averaging = FedAvg(fraction_train=fraction_train)
    result = averaging.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=num_rounds,
    )
    np.save("final_model.npy", result.arrays.to_numpy_ndarrays()[0])
'''
READY_SERVER = (
    SERVER.replace("fraction_train=fraction_train", "")
    .replace(
        "    result = ",
        """\
    averaging = Muster(
        averaging, policy="bsfl", cohort_size=4, folder="runs/small", deadline_seconds=30
    )
    result = """,
    )
    .replace("\napp =", "from fedmuster.flower import Muster\n\napp =")
)


def app(**files: str) -> Files:
    """An app whose files differ from the quickstart's; ``server_app`` is small/server_app.py."""
    written = {"server_app": SERVER, "client_app": CLIENT, **files}
    manifest = written.pop("manifest", MANIFEST)
    modules = {f"small/{name}.py": text for name, text in written.items()}
    return {"pyproject.toml": manifest, "LICENSE": "", "small/__init__.py": "", **modules}


QUICKSTART = app()
READY = app(server_app=READY_SERVER, client_app=REPORTING_CLIENT)

CUSTOM_START = app(
    server_app=SERVER.replace("import FedAvg", "import Strategy")
    .replace("\napp =", "from small.strategy import PatientFedAvg\n\napp =")
    .replace("averaging = FedAvg(fraction_train=fraction_train)", "keeper = PatientFedAvg(8)")
    .replace("    result = averaging", "    keeper.keep_models_in('models')\n    result = keeper"),
    strategy=dedent('''\
        """A strategy of the app's own, with a loop of its own."""

        from flwr.app import ConfigRecord
        from flwr.serverapp.strategy import FedAvg as Base
        from flwr.serverapp.strategy import Result


        class Keeper(Base):
            def keep_models_in(self, folder):
                self.folder = folder


        class PatientFedAvg(Keeper):
            def __init__(self, patience, **kwargs):
                super().__init__(min_train_nodes=patience, **kwargs)

            def start(self, grid, initial_arrays, num_rounds=3, timeout=3600, **more):
                result = Result()
                result.arrays = initial_arrays
                for number in range(1, num_rounds + 1):
                    config = ConfigRecord()
                    asked = self.configure_train(number, result.arrays, config, grid)
                    replies = grid.send_and_receive(asked, timeout=timeout)
                    result.arrays, _ = self.aggregate_train(number, replies)
                return result
        '''),
)
CUSTOM_START_READY: Files = {
    **CUSTOM_START,
    "small/server_app.py": CUSTOM_START["small/server_app.py"]
    .replace("\napp =", "from fedmuster.flower import Muster\n\napp =")
    .replace(
        "    result =",
        '    keeper = Muster(keeper, policy="random", cohort_size=8, folder="/no/such/place")\n'
        "    result =",
    ),
}

FACTORY = app(
    server_app=SERVER.replace(
        "averaging = FedAvg(fraction_train=fraction_train)",
        "averaging = build(context.run_config.get('kind', 'prox'), fraction=fraction_train)",
    ).replace("\napp =", "from .build import make_strategy as build\n\napp ="),
    build=dedent('''\
        """Strategies are built here."""

        import flwr.serverapp.strategy as strategies

        NEEDED = 12


        def make_strategy(kind, fraction, mu=0.1):
            if kind == "prox":
                return strategies.FedProx(
                    fraction_train=fraction, proximal_mu=mu, min_available_nodes=NEEDED
                )
            return strategies.FedAdam(fraction_train=fraction)
        '''),
)

_DP = "DifferentialPrivacyServerSideFixedClipping"
DP_OUTSIDE = app(
    server_app=READY_SERVER.replace("import FedAvg", f"import {_DP}, FedAvg").replace(
        "    result = ",
        f"    averaging = {_DP}(averaging, 0.5, 1.0, num_sampled_clients=4)\n    result = ",
    ),
    client_app=REPORTING_CLIENT,
)
DP_INSIDE = app(
    server_app=READY_SERVER.replace("import FedAvg", f"import {_DP}, FedAvg").replace(
        "averaging = FedAvg()", f"averaging = {_DP}(FedAvg(), 0.5, 1.0, num_sampled_clients=5)"
    ),
    client_app=REPORTING_CLIENT,
)

LEGACY = app(
    server_app=dedent('''\
        """A ServerApp of the older API."""

        from flwr.common import Context
        from flwr.server import ServerApp, ServerAppComponents, ServerConfig
        from flwr.server.strategy import FedAvg


        def server_fn(context: Context):
            strategy = FedAvg(fraction_fit=0.5, min_available_clients=2)
            config = ServerConfig(num_rounds=3)
            return ServerAppComponents(strategy=strategy, config=config)


        app = ServerApp(server_fn=server_fn)
        '''),
    client_app=dedent('''\
        """A ClientApp of the older API."""

        from flwr.client import ClientApp, NumPyClient


        class FlowerClient(NumPyClient):
            def fit(self, parameters, config):
                return parameters, 1, {}


        def client_fn(context):
            return FlowerClient().to_client()


        app = ClientApp(client_fn)
        '''),
)
SCRIPTS: Files = {
    "server.py": dedent('''\
        """A server of the oldest API."""

        import flwr as fl

        strategy = fl.server.strategy.FedAvg()
        fl.server.start_server(config=fl.server.ServerConfig(num_rounds=3), strategy=strategy)
        ''')
}

BROKEN_IMPORT = app(
    client_app=CLIENT.replace("import numpy", "import no_such_package_anywhere\nimport numpy")
)
BROKEN_SYNTAX = app(server_app=SERVER.replace("app = ServerApp()", "app = ServerApp("))
HANGING = app(server_app="import time\n\nprint('still here', flush=True)\ntime.sleep(600)\n")
EXITING = app(server_app="import os\n\nprint('so long', flush=True)\nos._exit(3)\n")
NOT_AN_APP = app(server_app="app = 'hello'\n")

CHOSEN_CLASS = app(
    server_app=SERVER.replace("import FedAvg", "import FedAdam, FedAvg")
    .replace(
        "    averaging = FedAvg(fraction_train=fraction_train)",
        """\
    common = dict(fraction_train=fraction_train, min_available_nodes=2)
    if num_rounds > 2:
        kind = FedAdam
    else:
        kind = FedAvg
    averaging = kind(**common, **{"min_train_nodes": 6})""",
    )
    .replace("    np.save", "    print(averaging.history)\n    np.save")
)

BY_HAND = app(
    server_app=dedent('''\
        """A ServerApp that speaks to its nodes itself."""

        from flwr.serverapp import ServerApp

        app = ServerApp()


        @app.main()
        def main(grid, context):
            replies = grid.send_and_receive([])
        ''')
)
IN_A_LOOP = app(
    server_app=SERVER.replace(
        "    result = averaging.start(",
        "    for number in range(num_rounds):\n      result = averaging.start(",
    )
)
INLINE = app(
    server_app=SERVER.replace(
        "    averaging = FedAvg(fraction_train=fraction_train)\n    result = averaging.start(",
        "    result = FedAvg(min_evaluate_nodes=11).start(",
    )
)

_PRIVACY = READY_SERVER.replace("deadline_seconds=30", "privacy=Privacy(epsilon=5.0)").replace(
    "\napp =", "from fedmuster.privacy.budget import Privacy\n\napp ="
)
PRIVATE_SERVER_ONLY = app(server_app=_PRIVACY, client_app=REPORTING_CLIENT)
_PRIVATE_CLIENT = REPORTING_CLIENT.replace("ReportingMod\n", "PrivateMod, ReportingMod\n").replace(
    "[ReportingMod()]", "[PrivateMod(), ReportingMod()]"
)
_LIMITED_CLIENT = _PRIVATE_CLIENT.replace(
    "PrivateMod()", 'PrivateMod(mechanism="laplace", max_epsilon=5.0)'
)
PRIVATE_CLIENT_ONLY = app(server_app=READY_SERVER, client_app=_PRIVATE_CLIENT)
PRIVATE = app(
    server_app=_PRIVACY.replace("FedAvg()", "FedAvg(fraction_evaluate=0.0)"),
    client_app=_PRIVATE_CLIENT,
)
LIMITED = {**PRIVATE, "small/client_app.py": _LIMITED_CLIENT}


def lay_out(files: Files, folder: Path) -> Path:
    """Write an app into ``folder``."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
