"""A cell of the league: one run, and the file with its result."""

import hashlib
import json
import tomllib
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from claims.league.at_work import AtWork, ObservedSimulation
from claims.league.code import Code, code_of
from claims.league.software import versions
from claims.racing.milestones import Costs, costs_to, end_level, seconds_to, smoothed
from fedmuster.core.errors import FedmusterError, FedmusterWarning, StateError
from fedmuster.core.files import write_file
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.registry import is_outside
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.spec_tables import read_policies
from fedmuster.federation import RoundRow, Simulation
from fedmuster.report.curves import last_before

COSTS = tuple(item.name for item in fields(Costs))
CURVE_POINTS = 50
_LABEL = "contestant"
_ROOTS = (
    *(__name__, Simulation.__module__, Experiment.__module__),
    *(read_policies.__module__, last_before.__module__),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PlayedCourse:
    """The course of a run, see :class:`~claims.racing.milestones.Course`."""

    columns: Mapping[str, FloatArray]
    cohort_sizes: IntArray
    num_parameters: int

    @property
    def rounds(self) -> int:
        """How many aggregations there were."""
        return len(self.cohort_sizes)

    @classmethod
    def of(cls, rows: list[RoundRow], num_parameters: int) -> "PlayedCourse":
        """From the rows of a simulation."""
        columns = {
            "seconds": [row.seconds for row in rows],
            "accuracy": [row.learning.accuracy for row in rows],
            "num_completed": [row.num_completed for row in rows],
            "num_aggregated": [row.learning.num_aggregated for row in rows],
        }
        return cls(
            columns={name: np.array(values, dtype=np.float64) for name, values in columns.items()},
            cohort_sizes=np.array([len(row.clients) for row in rows], dtype=np.int64),
            num_parameters=num_parameters,
        )


class Failure(NamedTuple):
    """Why a run ended with an error.

    Args:
        round: the number of the aggregation in which the error was raised; 0 before the first.
        error: its class and its message.
    """

    round: int
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """The result of a run.

    Args:
        seconds: until the target; infinite if it was not reached, or if the run failed.
        costs: until the target, or of the whole run; 0 if the run failed.
        at_work: the number of clients at work until the target, or in the whole run; 0 likewise.
        end: the accuracy of the last tenth; NaN if the run stopped at the target, failed, or had no
            evaluation there.
        curve: the smoothed accuracy at :data:`CURVE_POINTS` times, evenly spaced up to the horizon;
            empty if the run stops at the target or failed.
        failure: why the run failed; None if it did not.
    """

    seconds: float
    costs: Costs
    at_work: AtWork
    end: float
    curve: tuple[float, ...]
    failure: Failure | None = None

    @classmethod
    def failed(cls, round_number: int, error: Exception) -> "Played":
        """The result of a run that failed: the target was never reached."""
        return cls(
            seconds=np.inf,
            costs=Costs(**dict.fromkeys(COSTS, 0.0)),
            at_work=AtWork(0.0, 0.0),
            end=np.nan,
            curve=(),
            failure=Failure(round_number, f"{type(error).__name__}: {error}"),
        )

    def to_json(self) -> bytes:
        """As text; NaN and infinity are written as Python's json does."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Played":
        """What :meth:`to_json` has written."""
        table = json.loads(text)
        return cls(
            seconds=table["seconds"],
            costs=Costs(**table["costs"]),
            at_work=AtWork(*table["at_work"]),
            end=table["end"],
            curve=tuple(table["curve"]),
            failure=None if table["failure"] is None else Failure(*table["failure"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One run: a contestant with its rates in a world with a seed.

    Args:
        experiment: of one policy, by any label, and one seed.
        target: the accuracy to reach.
        to_target: whether the run stops there, as is enough to choose learning rates.
    """

    experiment: Experiment
    target: float
    to_target: bool = False

    def __post_init__(self) -> None:
        ((label, policy),) = self.experiment.policies.items()
        own = self.experiment.federations[label]
        plain = replace(self.experiment, policies={_LABEL: policy}, federations={_LABEL: own})
        object.__setattr__(self, "experiment", plain)

    @property
    def horizon_seconds(self) -> float:
        """How long the run lasts at most."""
        assert self.experiment.seconds is not None
        return self.experiment.seconds

    def key(self) -> str:
        """A digest of everything that decides the run: settings, code and versions."""
        code = self.code()
        content = {
            "experiment": portable(self.experiment.to_table()),
            "target": self.target,
            "to_target": self.to_target,
            "code": code.digest,
            "versions": versions(code.libraries),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def code(self) -> Code:
        """The code that decides the run."""
        one = self.experiment
        parts = (one.policies, one.federations, one.federation, one.world, one.training)
        return code_of(*parts, modules=_ROOTS)

    def simulation(self) -> ObservedSimulation:
        """The run, before its start."""
        simulation = self.experiment.simulation(Path(), run=_LABEL, kind=ObservedSimulation)
        assert isinstance(simulation, ObservedSimulation)
        return simulation

    def play(self) -> Played:
        """Run it. A policy that raises an error ends its run, which then has failed."""
        try:
            simulation = self.simulation()
        except (FedmusterError, OSError, MemoryError):
            raise  # of the data or of the machine
        except Exception as error:
            return Played.failed(0, error)
        rows: list[RoundRow] = []
        with closing(simulation):
            try:
                while not simulation.finished and not self._stops(rows, simulation):
                    rows.append(simulation.step())
            except (OSError, MemoryError):
                raise
            except Exception as error:
                return Played.failed(len(rows) + 1, error)
            return self._played(course_of(rows, simulation), simulation)

    def course(self) -> PlayedCourse:
        """Run it to its horizon, and keep every row."""
        with closing(self.simulation()) as simulation:
            rows: list[RoundRow] = []
            while not simulation.finished:
                rows.append(simulation.step())
            return course_of(rows, simulation)

    def _stops(self, rows: list[RoundRow], simulation: ObservedSimulation) -> bool:
        """Whether the target is reached, if that is the end of the run."""
        if not (self.to_target and rows and rows[-1].learning.accuracy >= self.target):
            return False
        # Smoothed backwards: what comes later does not change when the target is reached.
        return bool(np.isfinite(self._seconds(course_of(rows, simulation))))

    def _played(self, course: PlayedCourse, simulation: ObservedSimulation) -> Played:
        seconds, horizon = self._seconds(course), self.horizon_seconds
        reached = bool(np.isfinite(seconds))
        curve: tuple[float, ...] = ()
        if not self.to_target:
            times = np.linspace(0.0, horizon, CURVE_POINTS + 1)[1:]
            values = last_before(times, *smoothed(course, seconds=horizon))
            curve = tuple(round(float(value), 4) for value in values)
        return Played(
            seconds=seconds,
            costs=costs_to(course, self.target, seconds=horizon),
            at_work=simulation.at_work(seconds if reached else simulation.elapsed_seconds),
            end=np.nan if self.to_target and reached else end_level(course),
            curve=curve,
        )

    def _seconds(self, course: PlayedCourse) -> float:
        return seconds_to(course, self.target, seconds=self.horizon_seconds)


def course_of(rows: list[RoundRow], simulation: ObservedSimulation) -> PlayedCourse:
    """The course of a run with these rows."""
    assert simulation.trainer is not None
    return PlayedCourse.of(rows, len(simulation.trainer.parameters))


def portable(config: Any) -> Any:
    """A table of settings without the folders of classes from outside: their code counts."""
    if isinstance(config, list):
        return [portable(one) for one in config]
    if not isinstance(config, dict):
        return config
    table = {key: portable(value) for key, value in config.items()}
    name = table.get("name")
    if isinstance(name, str) and is_outside(name):
        table["name"] = Path(name).name
    return table


class Job(NamedTuple):
    """A cell for another process, and the file for its result."""

    path: str
    experiment: str
    target: float
    to_target: bool


def job_of(cell: Cell, path: Path) -> Job:
    """The job that plays a cell."""
    return Job(str(path), cell.experiment.to_toml(), cell.target, cell.to_target)


def play_job(job: Job) -> None:
    """Play a cell and write the file, in a worker process.

    Raises:
        StateError: the code is not that from which the name of the file was made.
    """
    warnings.simplefilter("ignore", FedmusterWarning)
    experiment = Experiment.from_table(tomllib.loads(job.experiment))
    cell = Cell(experiment=experiment, target=job.target, to_target=job.to_target)
    path = Path(job.path)
    if cell.key() != path.stem:
        raise StateError(
            "the code has changed since the league began: start the same command again"
        )
    write_file(path, cell.play().to_json())
