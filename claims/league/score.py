"""The score: time to target as a share of random choice in rounds, and what it has cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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
        missed: runs that did not reach the target.
        runs: how many there are.
    """

    label: str
    in_rounds: bool
    time: Share
    client_updates: Share
    megabytes: Share
    server_updates: Share
    accuracy: Worst
    rival: Worst
    missed: int
    runs: int


class Score:
    """All scores of a record; arrays are [settings, seeds] in the record's order."""

    def __init__(self, record: LeagueRecord) -> None:
        self.record = record
        self.names = [setting.name for setting in record.settings]
        self._by_label = {one.label: one for one in record.contestants}
        self.labels = list(self._by_label)
        self.base = self.labels[0]
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
        """The sum of these costs until the target; twice those of the run if it was not reached."""
        whole = sum(np.array([runs.costs[name] for runs in self._runs(label)]) for name in names)
        return np.asarray(whole * np.where(self.reached(label) > 0, 1.0, NEVER))

    def ends(self, label: str) -> FloatArray:
        """The final accuracy."""
        return np.array([runs.final_accuracy for runs in self._runs(label)])

    def time_share(self, label: str, of: str | None = None) -> Share:
        """The score: time to the target as a share of another contestant's, or of the base's."""
        return self._share(self.seconds(label), self.seconds(of or self.base))

    def setting_shares(self, label: str) -> list[Share]:
        """In each setting, the time to the target as a share of the base's."""
        return [Share.of(row) for row in self.seconds(label) / self.seconds(self.base)]

    def accuracy_points(self, label: str) -> FloatArray:
        """[settings], the mean final accuracy less the base's, in points."""
        return np.asarray(100 * (self.ends(label) - self.ends(self.base)).mean(axis=1))

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
            missed=int((reached == 0).sum()),
            runs=reached.size,
        )

    def _against_rivals(self, label: str, rivals: Sequence[str]) -> Worst:
        if not rivals:
            return Worst(np.nan, "–")
        best = np.min([np.log(self.seconds(rival)).mean(axis=1) for rival in rivals], axis=0)
        ratio = np.exp(np.log(self.seconds(label)).mean(axis=1) - best)
        return self._worst(ratio, ratio)

    def _worst(self, values: FloatArray, badness: FloatArray) -> Worst:
        place = int(np.argmax(badness))
        return Worst(float(values[place]), self.names[place])

    @staticmethod
    def _share(values: FloatArray, base: FloatArray) -> Share:
        """Seed by seed the geometric mean over the settings, then over the seeds."""
        return Share.of(np.exp(np.log(values / base).mean(axis=0)))

    def _runs(self, label: str) -> list[RunsRecord]:
        return [self._by_label[label].runs[name] for name in self.names]
