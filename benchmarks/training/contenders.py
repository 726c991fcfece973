"""Who is measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from benchmarks.training.turns import Process, Turns
from benchmarks.training.workloads import WORKLOADS, Tensors, Workload


class Player(Protocol):
    """What the ``play`` of a contender's module is."""

    def __call__(self, turns: Turns, name: str, workload: Workload, **options: Any) -> Tensors:
        """Train all rounds of ``turns`` and return the global model."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """An engine to be measured.

    Args:
        name: for the table.
        module: whose ``play`` trains, see :class:`Player`; imported only in the process that plays.
        cores: that it may use.
        threads: that each of its processes may use.
        needs: the packages without which it cannot play.
        workloads: the names of those that it plays.
        options: further keyword arguments of ``play``.
        environment: further variables of its process.
    """

    name: str
    module: str
    cores: int
    threads: int = 1
    needs: tuple[str, ...] = ("torch",)
    workloads: tuple[str, ...] = tuple(WORKLOADS)
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """What is not installed."""
        return [package for package in self.needs if find_spec(package) is None]

    def start(self, name: str, workload: Workload) -> Process[Tensors]:
        """Let it play a workload."""
        return Process(
            _play, (self, name, workload), threads=self.threads, environment=self.environment
        )


def _play(turns: Turns, contender: Contender, name: str, workload: Workload) -> Tensors:
    player: Player = import_module(contender.module).play
    return player(turns, name, workload, **contender.options)


CNN = ("W3", "W4")
_PLAIN = "benchmarks.training.plain_loops"
_ENGINE = "benchmarks.training.fedmuster_engine"

CONTENDERS = (
    Contender(name="fedmuster", module=_ENGINE, cores=1),
    Contender(
        name="fedmuster, 2 workers", module=_ENGINE, cores=2, workloads=CNN, options={"workers": 2}
    ),
    Contender(
        name="PyTorch + DataLoader", module=_PLAIN, cores=1, options={"loop": "data loader"}
    ),
    Contender(name="lean PyTorch", module=_PLAIN, cores=1, options={"loop": "slices"}),
    Contender(
        name="lean PyTorch, channels last", module=_PLAIN, cores=1, workloads=CNN,
        options={"loop": "slices", "channels_last": True},
    ),
    Contender(
        name="PyTorch + DataLoader, 2 threads", module=_PLAIN, cores=2, threads=2,
        options={"loop": "data loader"},
    ),
    Contender(
        name="lean PyTorch, 2 threads", module=_PLAIN, cores=2, threads=2,
        options={"loop": "slices"},
    ),
    Contender(
        name="lean PyTorch, channels last, 2 threads", module=_PLAIN, cores=2, threads=2,
        workloads=CNN, options={"loop": "slices", "channels_last": True},
    ),
    Contender(
        name="Flower simulation, 2 actors", module="benchmarks.training.flower_peer", cores=2,
        needs=("torch", "flwr", "ray"),
        environment={
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        },
    ),
    Contender(
        name="pfl", module="benchmarks.training.pfl_peer", cores=1, needs=("torch", "pfl")
    ),
)  # fmt: skip
OURS = frozenset(c.name for c in CONTENDERS if c.module == _ENGINE)
LOOPS = frozenset(c.name for c in CONTENDERS if c.module == _PLAIN)
REFERENCE = "PyTorch + DataLoader"
"""With whose model every other has to agree."""
