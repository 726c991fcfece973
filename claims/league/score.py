"""The score: time to the target as a share of that of random choice in rounds, and its costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from claims.league.contestants import base
from claims.league.record import LeagueRecord, RunsRecord
from claims.league.runner import NEVER
from fedmuster.core.records import FloatArray
from fedmuster.report.statistics import interval


class Share(NamedTuple):
    """A geometric mean of shares over seeds with its 95 % interval; NaN ends for one seed."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, shares: FloatArray) -> "Share":
        """From one share a seed: mean and Student-t interval of the logarithms."""
        around = interval(np.log(shares))
        return cls(*np.exp([around.mean, around.low, around.high]).tolist())

    def __str__(self) -> str:
        if np.isnan(self.low):
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} ({self.low:.3f}–{self.high:.3f})"


class Worst(NamedTuple):
    """The worst of a number over the settings, and where."""

    value: float
    setting: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A contestant's place, all as shares of the base unless said otherwise.

    Args:
        label: of the contestant.
        in_rounds: whether it works in rounds.
        time: to the target: geometric mean over settings, then over seeds.
        client_updates: until the target.
        megabytes: down and up, until the target.
        server_updates: until the target.
        accuracy: the final accuracy less the base's, in points: the worst setting.
        rival: time over that of the best other contestant of the board: the worst setting.
        wasted: the share of client updates that never entered the model.
        at_work: the mean number of clients at work.
        peak: the largest number of clients at work in any run; NaN likewise.
        missed: the number of runs that did not reach the target.
        failed: the number of runs that ended with an error.
        runs: the number of runs.
    """

    label: str
    in_rounds: bool
    time: Share
    client_updates: Share
    megabytes: Share
    server_updates: Share
    accuracy: Worst
    rival: Worst
    wasted: float
    at_work: float
    peak: float
    missed: int
    failed: int
    runs: int


class Score:
    """All scores of a record; arrays are [settings, seeds] in the record's order."""

    def __init__(self, record: LeagueRecord) -> None:
        self.record = record
        self.names = [setting.name for setting in record.settings]
        self._by_label = {one.label: one for one in record.contestants}
        self.labels = list(self._by_label)
        self.base = base().label
        self._never = NEVER * np.array([[setting.seconds] for setting in record.settings])

    def seconds(self, label: str) -> FloatArray:
        """The time to the target; twice the horizon where it was not reached."""
        told = [[np.inf if s is None else s for s in runs.seconds] for runs in self._runs(label)]
        return np.minimum(np.array(told, dtype=np.float64), self._never)

    def reached(self, label: str) -> FloatArray:
        """Whether the target was reached: 1 or 0."""
        return np.array(
            [[float(s is not None) for s in runs.seconds] for runs in self._runs(label)]
        )

    def cost(self, label: str, *names: str) -> FloatArray:
        """The sum of these costs until the target; twice those of the run if it was not reached.

        NaN where a run failed.
        """
        whole = sum(self._spent(label, name) for name in names)
        return np.asarray(whole * np.where(self.reached(label) > 0, 1.0, NEVER))

    def at_work(self, label: str, which: str) -> FloatArray:
        """The "mean" or "peak" number of clients at work; NaN where the run failed."""
        return np.array([runs.at_work[which] for runs in self._runs(label)], dtype=np.float64)

    def ends(self, label: str) -> FloatArray:
        """The final accuracy; NaN where a run had none."""
        return np.array([runs.final_accuracy for runs in self._runs(label)], dtype=np.float64)

    def time_share(self, label: str, of: str | None = None) -> Share:
        """The score: time to the target as a share of another contestant's, or of the base's."""
        return self._share(self.seconds(label), self.seconds(of or self.base))

    def setting_shares(self, label: str) -> list[Share]:
        """In each setting, the time to the target as a share of the base's."""
        return [Share.of(row) for row in self.seconds(label) / self.seconds(self.base)]

    def accuracy_points(self, label: str) -> FloatArray:
        """[settings], the mean final accuracy less the base's, in points; over known seeds."""
        return 100 * _mean(self.ends(label) - self.ends(self.base), axis=1)

    def standings(self, labels: Sequence[str]) -> list[Standing]:
        """A leaderboard: the contestants by their score, the best first."""
        board = [self._standing(label, labels) for label in labels]
        return sorted(board, key=lambda standing: standing.time.mean)

    def _standing(self, label: str, board: Sequence[str]) -> Standing:
        points = self.accuracy_points(label)
        reached = self.reached(label)

        def cost(*names: str) -> Share:
            return self._share(self.cost(label, *names), self.cost(self.base, *names))

        return Standing(
            label=label,
            in_rounds=self._by_label[label].in_rounds,
            time=self.time_share(label),
            client_updates=cost("client_updates"),
            megabytes=cost("megabytes_down", "megabytes_up"),
            server_updates=cost("server_updates"),
            accuracy=self._worst(points, -points),
            rival=self._against_rivals(label, [other for other in board if other != label]),
            wasted=self._wasted(label),
            at_work=float(_mean(self.at_work(label, "mean"))),
            peak=float(np.fmax.reduce(self.at_work(label, "peak"), axis=None)),
            missed=int((reached == 0).sum()),
            failed=sum(run.use == "judging" for run in self._by_label[label].failed),
            runs=reached.size,
        )

    def _against_rivals(self, label: str, rivals: Sequence[str]) -> Worst:
        if not rivals:
            return Worst(np.nan, "–")
        best = np.min([np.log(self.seconds(rival)).mean(axis=1) for rival in rivals], axis=0)
        ratio = np.exp(np.log(self.seconds(label)).mean(axis=1) - best)
        return self._worst(ratio, ratio)

    def _worst(self, values: FloatArray, badness: FloatArray) -> Worst:
        """The value with the greatest badness; settings in which it is NaN do not count."""
        if np.isnan(badness).all():
            return Worst(np.nan, "–")
        place = int(np.nanargmax(badness))
        return Worst(float(values[place]), self.names[place])

    @staticmethod
    def _share(values: FloatArray, base: FloatArray) -> Share:
        """Seed by seed the geometric mean over the settings, then over the seeds.

        Runs without a number are left out.
        """
        means = _mean(np.log(values / base), axis=0)
        known = np.exp(means[~np.isnan(means)])
        return Share.of(known) if len(known) > 0 else Share(np.nan, np.nan, np.nan)

    def _wasted(self, label: str) -> float:
        """The share of client updates that never entered the model."""
        updates = np.nansum(self._spent(label, "client_updates"))
        return float(np.nansum(self._spent(label, "wasted")) / updates) if updates else np.nan

    def _spent(self, label: str, name: str) -> FloatArray:
        return np.array([runs.costs[name] for runs in self._runs(label)], dtype=np.float64)

    def _runs(self, label: str) -> list[RunsRecord]:
        return [self._by_label[label].runs[name] for name in self.names]


def _mean(values: FloatArray, axis: int | None = None) -> FloatArray:
    """The mean without NaN; NaN where nothing else is."""
    known = ~np.isnan(values)
    count = np.asarray(known.sum(axis=axis))
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count == 0, np.nan, total / np.maximum(count, 1))
