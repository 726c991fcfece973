"""A cell of the league: one run, and the file that keeps what came of it."""

import hashlib
import json
import tomllib
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fedmuster
from claims.league.code import code_digest
from claims.racing.milestones import Costs, costs_to, end_level, seconds_to, smoothed
from fedmuster.core.errors import FedmusterWarning
from fedmuster.core.files import write_file
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import RoundRow, Simulation
from fedmuster.report.curves import last_before

CURVE_POINTS = 50
_LABEL = "contestant"


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """What came of a run.

    Args:
        seconds: until the target; infinite if it was not reached.
        costs: until then, or of the whole run.
        end: the accuracy of the last tenth; NaN of a run that stopped at the target.
        curve: the smoothed accuracy at :data:`CURVE_POINTS` times, evenly spaced up to the horizon.
    """

    seconds: float
    costs: Costs
    end: float
    curve: tuple[float, ...]

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
            end=table["end"],
            curve=tuple(table["curve"]),
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
        table = self.experiment.to_table()
        for policy in table["policy"]:  # the file may lie elsewhere: its code counts
            policy["name"] = Path(policy["name"]).name
        content = {
            "experiment": table,
            "target": self.target,
            "to_target": self.to_target,
            "code": self._code_digest(),
            "versions": [fedmuster.__version__, np.__version__],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _code_digest(self) -> str:
        one = self.experiment
        parts = (one.policies, one.federations, one.federation, one.world, one.training)
        return code_digest(*parts, modules=(__name__, Simulation.__module__))

    def course(self) -> PlayedCourse:
        """Run it."""
        rows: list[RoundRow] = []
        with closing(self.experiment.simulation(Path(), run=_LABEL)) as simulation:
            assert simulation.trainer is not None
            num_parameters = len(simulation.trainer.parameters)
            while not simulation.finished:
                rows.append(simulation.step())
                # Smoothed backwards: what comes later does not change when the target is reached.
                if self.to_target and rows[-1].learning.accuracy >= self.target:
                    course = PlayedCourse.of(rows, num_parameters)
                    if np.isfinite(self._seconds(course)):
                        return course
        return PlayedCourse.of(rows, num_parameters)

    def play(self) -> Played:
        """Run it, and keep what the league asks."""
        course, horizon = self.course(), self.horizon_seconds
        seconds = self._seconds(course)
        curve: tuple[float, ...] = ()
        if not self.to_target:
            times = np.linspace(0.0, horizon, CURVE_POINTS + 1)[1:]
            values = last_before(times, *smoothed(course, seconds=horizon))
            curve = tuple(round(float(value), 4) for value in values)
        return Played(
            seconds=seconds,
            costs=costs_to(course, self.target, seconds=horizon),
            end=np.nan if self.to_target and np.isfinite(seconds) else end_level(course),
            curve=curve,
        )

    def _seconds(self, course: PlayedCourse) -> float:
        return seconds_to(course, self.target, seconds=self.horizon_seconds)


class Job(NamedTuple):
    """A cell for another process, and the file for what comes of it."""

    path: str
    experiment: str
    target: float
    to_target: bool


def job_of(cell: Cell, path: Path) -> Job:
    """The job that plays a cell."""
    return Job(str(path), cell.experiment.to_toml(), cell.target, cell.to_target)


def play_job(job: Job) -> None:
    """Play a cell and write the file, in a worker process."""
    warnings.simplefilter("ignore", FedmusterWarning)
    experiment = Experiment.from_table(tomllib.loads(job.experiment))
    cell = Cell(experiment=experiment, target=job.target, to_target=job.to_target)
    write_file(Path(job.path), cell.play().to_json())


COSTS = tuple(item.name for item in fields(Costs))
