"""What fails when a spec is rehearsed is put down to the line and key that is wrong."""

from pathlib import Path

import pytest

from fedmuster.core.errors import ConfigError
from fedmuster.experiments.spec import Experiment

ACTIVITY = "client,start_seconds,end_seconds\n"
DEVICES = "client,compute_ms_per_sample,bandwidth_kbit_per_second\n"
LATENCY = "client,round,latency_seconds\n"
TRAINING = """
[training]
model = { name = "logistic" }
"""


def complaint(tmp_path: Path, text: str) -> str:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Experiment.load(path, rehearse=True)
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize("training", ["", TRAINING], ids=["selection", "training"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the {what} {path}: No such file or directory"),
        ("{head}1,nan,5\n", "{path}, line 2: {column} = 'nan'"),
        ("client,colour\n1,red\n", "{path}: column '{column}' is not in the header"),
    ],
    ids=["missing file", "NaN", "wrong column"],
)
@pytest.mark.parametrize(
    ("where", "name", "what", "head", "column"),
    [
        ("availability", "activity-trace", "activity trace", ACTIVITY, "start_seconds"),
        ("devices", "device-trace", "device trace", DEVICES, "compute_ms_per_sample"),
    ],
)
def test_a_trace_in_the_world(
    tmp_path: Path,
    training: str,
    content: str | None,
    message: str,
    where: str,
    name: str,
    what: str,
    head: str,
    column: str,
) -> None:
    path = tmp_path / "trace.csv"
    if content is not None:
        path.write_text(content.format(head=head))
    spec = f"""\
rounds = 3

[world]
name = "devices"
num_clients = 5
cohort_size = 2

[world.{where}]
name = "{name}"
path = "{path}"
{training}
[[policy]]
name = "random"
"""
    expected = message.format(what=what, path=path, column=column)
    assert complaint(tmp_path, spec).startswith(f", line 10: world.{where}.path: {expected}")


@pytest.mark.parametrize("training", ["", TRAINING], ids=["selection", "training"])
def test_a_trace_that_is_the_world(tmp_path: Path, training: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"{LATENCY}1,1,nan\n")
    spec = f"""\
rounds = 3
policy = "random"

[world]
name = "trace"
path = "{path}"
{training}"""
    assert complaint(tmp_path, spec).startswith(f", line 6: world.path: {path}, line 2: latency")


def test_regret_where_more_are_asked_than_waited_for(tmp_path: Path) -> None:
    spec = """\
rounds = 3
regret = true

[world]
name = "bsfl-rates"
over_selection = 1.4

[[policy]]
name = "random"
"""
    assert complaint(tmp_path, spec).startswith(", line 2: regret: regret is defined for cohorts")


@pytest.mark.parametrize(
    ("data", "partition", "message"),
    [
        ("exponential-sizes", "iid", "both the world (data) and the training (partition) say how"),
        ("exponential-sizes", "sampled", "both the world (data) and the training (partition) say"),
    ],
)
def test_data_of_both_the_world_and_the_training(
    tmp_path: Path, data: str, partition: str, message: str
) -> None:
    spec = f"""\
rounds = 3

[world]
name = "bsfl-rates"
data = "{data}"

[training]
model = "logistic"
partition = "{partition}"

[[policy]]
name = "random"
"""
    assert complaint(tmp_path, spec).startswith(f", line 5: world.data: {message}")


def test_a_server_that_does_not_go_with_a_policy(tmp_path: Path) -> None:
    spec = """\
rounds = 3
world = "bsfl-rates"

[training]
model = "logistic"

[training.server]
name = "fedavg"
clip_norm = 1.0

[[policy]]
name = "random"

[[policy]]
name = "safa"
"""
    assert complaint(tmp_path, spec).startswith(", line 9: training.server.clip_norm: FedAvg: ")


@pytest.mark.parametrize(
    ("policy", "line", "message"),
    [
        ('name = "pause"\nrho = 0.5', 9, "policy.1.rho: rho = 0.5 charges for clients"),
        ('name = "power-of-choice"\nvariant = "pow-d"', 7, "policy.1: PowerOfChoice: variant"),
    ],
)
def test_what_a_policy_cannot_do_is_its_own_fault(
    tmp_path: Path, policy: str, line: int, message: str
) -> None:
    spec = f"""\
rounds = 3
world = "bsfl-rates"

[[policy]]
name = "random"

[[policy]]
{policy}
"""
    assert complaint(tmp_path, spec).startswith(f", line {line}: {message}")
