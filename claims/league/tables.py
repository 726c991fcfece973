"""The tables of a league: leaderboards, settings one by one, rates, rivals side by side."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from claims.league.record import LeagueRecord, RunsRecord
from claims.league.score import Score, Share, Standing
from fedmuster.report.tables import Table

RIVALS = ("random, rounds", "oort, rounds", "fedbuff, published", "pisces, published")
"""Whom everybody is held against, where they take part."""

_BOARD_NOTES = (
    "Time: the geometric mean over settings of the time to the target as a share of that of random "
    "choice in rounds, and its 95 % interval over seeds, paired. A target that is not reached "
    "counts as reached after twice the horizon.",
    "Updates of clients and of the server and megabytes (down and up): until the target, as shares "
    "of those of random choice in rounds.",
    "End: final accuracy (mean of the last tenth) less that of random choice in rounds, in points, "
    "in the worst setting. Best rival: time over that of the best other contestant of the board, "
    "in the worst setting. Missed: runs that did not reach the target.",
)


def leaderboards(score: Score) -> list[Table]:
    """One for all; where both are there, one for rounds and one without, with the base in both."""
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
            (f"{score.base} (%)", *(f"{value:.1f}" for value in base)),
            *(
                (label, *(f"{value:+.2f}" for value in score.accuracy_points(label)))
                for label in score.labels[1:]
            ),
        ),
        footnotes=("Means over the seeds of the mean of the last tenth of the horizon.",),
    )


def chosen_rates(record: LeagueRecord) -> Table:
    """What contestants have chosen on the tuning seeds."""
    return _by_setting(record, "Learning rates, chosen in the worlds for tuning", _rate_text)


def client_work(score: Score) -> Table:
    """What clients and the server had done at the target in each setting."""

    def text(runs: RunsRecord) -> str:
        clients, server = (np.mean(runs.costs[f"{who}_updates"]) for who in ("client", "server"))
        missed = sum(value is None for value in runs.seconds)
        note = f", {missed} missed" if missed else ""
        return f"{clients:,.0f} / {server:,.0f}{note}"

    title = "Client updates / server updates until the target"
    return _by_setting(score.record, title, text)


def rivals(score: Score) -> Table | None:
    """Everybody against a few; None where only the base takes part of them."""
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
    """The settings: which world was used for what."""
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
    """Whose file it was."""
    return Table(
        title="The contestants",
        columns=("contestant", "settings of the policy", "SHA-256 of its source"),
        rows=tuple(
            (
                one.label,
                ", ".join(f"{k} = {v}" for k, v in one.policy.items() if k != "name") or "–",
                one.source_sha256[:16] + "…",
            )
            for one in record.contestants
        ),
        footnotes=(),
    )


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
            *("end (points)", "best rival", "missed"),
        ),
        rows=tuple(
            (
                f"{place}. {one.label}",
                str(one.time),
                f"{one.client_updates.mean:.2f}",
                f"{one.megabytes.mean:.2f}",
                f"{one.server_updates.mean:.2f}",
                f"{one.accuracy.value:+.2f} ({one.accuracy.setting})",
                f"{one.rival.value:.2f} ({one.rival.setting})",
                f"{one.missed} of {one.runs}",
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
