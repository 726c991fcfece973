"""The tables of a league: leaderboards, settings one by one, rates, rivals side by side."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from claims.league.record import ContestantRecord, LeagueRecord, RunsRecord
from claims.league.score import Score, Share, Standing
from fedmuster.core.words import several
from fedmuster.report.tables import Table

RIVALS = ("random, rounds", "oort, rounds", "fedbuff, published", "pisces, published")
"""The rivals in the comparison table."""

_BOARD_NOTES = (
    "Time: the geometric mean over settings of the time to the target as a share of that of random "
    "choice in rounds, and its 95 % interval over seeds, paired. A target that is not reached "
    "counts as reached after twice the horizon.",
    "Updates of clients and of the server and megabytes (down and up): until the target, as shares "
    "of those of random choice in rounds.",
    "End: final accuracy (mean of the last tenth) less that of random choice in rounds, in points, "
    "in the worst setting. Best rival: time over that of the best other contestant of the board, "
    "in the worst setting. Missed: runs that did not reach the target.",
    "Wasted: the share of client updates until the target that never entered the model. At work: "
    "the mean number of clients at work until the target (late ones included), and the largest "
    "number in any run.",
)


def leaderboards(score: Score) -> list[Table]:
    """One for all contestants; where both exist, one for rounds and one without rounds.

    The base is in every one.
    """
    in_rounds = [one.label for one in score.record.contestants if one.in_rounds]
    others = [label for label in score.labels if label not in in_rounds]
    boards = {"Leaderboard": score.labels}
    if others and len(in_rounds) > 1:
        boards["Leaderboard: in rounds"] = in_rounds
        boards["Leaderboard: without rounds"] = [score.base, *others]
    tables = [_board(title, score.standings(labels)) for title, labels in boards.items()]
    return [replace(tables[0], footnotes=_BOARD_NOTES), *tables[1:]]


def setting_shares(score: Score) -> Table:
    """The time to the target in each setting."""
    return Table(
        title="Time to the target as a share of that of random choice in rounds, by setting",
        columns=("contestant", *score.names),
        rows=tuple(
            (label, *(_short(share) for share in score.setting_shares(label)))
            for label in score.labels
        ),
        footnotes=("Geometric mean over the seeds × or / the factor of its 95 % interval.",),
    )


def final_accuracy(score: Score) -> Table:
    """The end of the runs in each setting."""
    base = 100 * score.ends(score.base).mean(axis=1)
    return Table(
        title="Final accuracy less that of random choice in rounds, in points, by setting",
        columns=("contestant", *score.names),
        rows=(
            (f"{score.base} (%)", *(_text(value, ".1f") for value in base)),
            *(
                (label, *(_text(value, "+.2f") for value in score.accuracy_points(label)))
                for label in score.labels
                if label != score.base
            ),
        ),
        footnotes=("Means over the seeds of the mean of the last tenth of the horizon.",),
    )


def chosen_rates(record: LeagueRecord) -> Table:
    """The rates that contestants have chosen on the tuning seeds."""
    return _by_setting(record, "Learning rates, chosen in the worlds for tuning", _rate_text)


def client_work(score: Score) -> Table:
    """The updates of clients and of the server until the target in each setting."""

    def text(runs: RunsRecord) -> str:
        clients, server, wasted = (
            _text(_known_mean(runs.costs[name]), ",.0f")
            for name in ("client_updates", "server_updates", "wasted")
        )
        missed = sum(value is None for value in runs.seconds)
        note = f", {missed} missed" if missed else ""
        return f"{clients} / {server} / {wasted}{note}"

    title = "Client updates / server updates / wasted client updates until the target"
    return _by_setting(score.record, title, text)


def clients_at_work(score: Score) -> Table:
    """The number of clients at work in each setting."""

    def text(runs: RunsRecord) -> str:
        mean = _known_mean(runs.at_work["mean"])
        peaks = [peak for peak in runs.at_work["peak"] if peak is not None]
        return f"{_text(mean, '.1f')} / {_text(max(peaks, default=np.nan), 'g')}"

    table = _by_setting(score.record, "Clients at work: mean / largest number", text)
    note = (
        "A client is at work from the moment it is asked until it has answered, also if the server "
        "no longer waits for it. Until the target, or in the whole run."
    )
    return replace(table, footnotes=(note,))


def failed_runs(record: LeagueRecord) -> Table | None:
    """The runs that ended with an error; None where there are none."""
    rows = tuple(
        (one.label, run.setting, f"{run.use} seed {run.seed}", f"{run.round}", run.error)
        for one in record.contestants
        for run in one.failed
    )
    if not rows:
        return None
    return Table(
        title="Runs that failed",
        columns=("contestant", "setting", "run", "round", "error"),
        rows=rows,
        footnotes=("A run that failed counts as one that never reached the target.",),
    )


def failed_text(contestant: ContestantRecord) -> str:
    """How many runs of a contestant failed."""
    return f"{several(len(contestant.failed), 'run')} failed"


def rivals(score: Score) -> Table | None:
    """All contestants against the usual rivals; None where only the base of them takes part."""
    known = [label for label in RIVALS if label in score.labels]
    if len(known) < 2:
        return None
    return Table(
        title="Time to the target as a share of that of some rivals",
        columns=("contestant", *(f"of {label}" for label in known)),
        rows=tuple(
            (label, *(str(score.time_share(label, of)) for of in known)) for label in score.labels
        ),
        footnotes=("Geometric mean over settings, 95 % interval over seeds, paired.",),
    )


def settings_table(record: LeagueRecord) -> Table:
    """The settings, with the worlds for judging and for tuning."""
    return Table(
        title="The settings",
        columns=("setting", "task", "target", "horizon (s)", "judged in", "tuned in"),
        rows=tuple(
            (
                one.name,
                one.task,
                f"{100 * one.target:g} %",
                f"{one.seconds:g}",
                one.judging,
                one.tuning,
            )
            for one in record.settings
        ),
        footnotes=(),
    )


def contestants_table(record: LeagueRecord) -> Table:
    """The settings and source hash of each policy."""
    return Table(
        title="The contestants",
        columns=("contestant", "settings of the policy", "SHA-256 of its source", "runs"),
        rows=tuple(
            (
                one.label,
                ", ".join(f"{k} = {v}" for k, v in one.policy.items() if k != "name") or "–",
                one.source_sha256[:16] + "…",
                _origin(one),
            )
            for one in record.contestants
        ),
        footnotes=(),
    )


def _origin(contestant: ContestantRecord) -> str:
    """Where its runs come from, and how many failed."""
    copied = contestant.copied_from
    origin = f"from an earlier record ({copied[:16]}…)" if copied else "for this record"
    return f"{origin}; {failed_text(contestant)}" if contestant.failed else origin


def _by_setting(record: LeagueRecord, title: str, text: Callable[[RunsRecord], str]) -> Table:
    names = [setting.name for setting in record.settings]
    return Table(
        title=title,
        columns=("contestant", *names),
        rows=tuple(
            (one.label, *(text(one.runs[name]) for name in names)) for one in record.contestants
        ),
        footnotes=(),
    )


def _board(title: str, standings: Sequence[Standing]) -> Table:
    return Table(
        title=title,
        columns=(
            *("contestant", "time", "client updates", "MB", "server updates"),
            *("wasted", "at work", "end (points)", "best rival", "missed"),
        ),
        rows=tuple(
            (
                f"{place}. {one.label}",
                str(one.time),
                _text(one.client_updates.mean, ".2f"),
                _text(one.megabytes.mean, ".2f"),
                _text(one.server_updates.mean, ".2f"),
                _text(100 * one.wasted, ".0f", " %"),
                f"{_text(one.at_work, '.1f')} / {_text(one.peak, 'g')}",
                _text(one.accuracy.value, "+.2f", f" ({one.accuracy.setting})"),
                _text(one.rival.value, ".2f", f" ({one.rival.setting})"),
                f"{one.missed} of {one.runs}" + (f", {one.failed} failed" if one.failed else ""),
            )
            for place, one in enumerate(standings, start=1)
        ),
        footnotes=(),
    )


def _short(share: Share) -> str:
    factor = share.high / share.mean
    return f"{share.mean:.2f}" if np.isnan(factor) else f"{share.mean:.2f} ×/ {factor:.2f}"


def _rate_text(runs: RunsRecord) -> str:
    server = {key: value for key, value in runs.server.items() if key != "weights"}
    name = server.pop("name")
    told = f"{runs.learning_rate:g}"
    if name != "fedavg":
        rates = " ".join(f"{v:g}" for v in server.values() if isinstance(v, float))
        told += f" ({name} {rates})"
    return told


def _known_mean(values: Sequence[float | None]) -> float:
    """The mean of the values that are there; NaN if none is."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else np.nan


def _text(value: float, form: str, unit: str = "") -> str:
    return "–" if np.isnan(value) else f"{value:{form}}{unit}"
