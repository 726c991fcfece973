"""The page of a league: leaderboards, pictures, and the worlds and seeds of its runs."""

from pathlib import Path

from claims.league import figures, tables
from claims.league.record import LeagueRecord
from claims.league.score import Score
from claims.racing.contestant import CONCURRENCY
from fedmuster.core.files import write_file
from fedmuster.report.tables import to_markdown

_QUICK_NOTE = "> The short form has too few settings, seeds and learning rates to decide anything."


def to_page(record: LeagueRecord, stem: str) -> str:
    """The page in Markdown; its pictures are called by ``stem``."""
    score = Score(record)
    head = [
        f"# The league, version {record.version} of its settings",
        *([_QUICK_NOTE] if record.quick else []),
        _rules(record),
        f"Made by `{record.command}`. `fedmuster league --verify {stem}.json` checks the checksum "
        "of the record, which proves only that the file was not edited; with `--rerun 10` it also "
        "plays 10 random runs again and compares every number.",
        *_failed(record),
    ]
    shown = [
        *tables.leaderboards(score),
        tables.rivals(score),
        tables.setting_shares(score),
        tables.final_accuracy(score),
        tables.client_work(score),
        tables.clients_at_work(score),
        tables.failed_runs(record),
        tables.chosen_rates(record),
        tables.settings_table(record),
        tables.contestants_table(record),
    ]
    pictures = [f"![{name}]({stem}-{name}.png)" for name in PICTURES]
    body = to_markdown(table for table in shown if table is not None)
    return "\n\n".join([*head, *pictures, body]).rstrip() + "\n"


def write_page(record: LeagueRecord, folder: Path) -> list[Path]:
    """The record, the page and its pictures."""
    from fedmuster.report.figures import save

    stem = "league" + "-quick" * record.quick
    numbers, page = folder / f"{stem}.json", folder / f"{stem}.md"
    record.write(numbers)
    write_file(page, to_page(record, stem).encode())
    written = [numbers, page]
    for name, draw in PICTURES.items():
        written.append(folder / f"{stem}-{name}.png")
        save(draw(Score(record)), written[-1])
    return written


PICTURES = {
    "leaderboard": figures.leaderboard,
    "settings": figures.by_setting,
    "accuracy": figures.accuracy_curves,
}


def _rules(record: LeagueRecord) -> str:
    rates = ", ".join(f"{rate:g}" for rate in record.rates)
    return (
        f"{len(record.contestants)} contestants in {len(record.settings)} settings (SHA-256 "
        f"{record.settings_sha256[:16]}…). The server has {CONCURRENCY} slots, in rounds and "
        f"without, and late clients hold theirs. Each contestant's learning rate of {rates}, and "
        "its server rule where it has several, is chosen by the time to the target **in the worlds "
        f"for tuning, on the {_listed(record.tuning_seeds)}**. The contestant is judged **in other "
        f"worlds, on the {_listed(record.judging_seeds)}**. The target of a setting was fixed in "
        "advance: it is "
        "the accuracy that random choice in rounds reaches within 70 % of the horizon at its best "
        "learning rate, in the world for judging, but on the tuning seeds. A contestant is at the "
        "target when its accuracy, averaged over the last 3 % of the horizon, is. "
        f"Software: {', '.join(f'{k} {v}' for k, v in record.software.items())}."
    )


def _failed(record: LeagueRecord) -> list[str]:
    failed = [
        f"{one.label} ({tables.failed_text(one)})" for one in record.contestants if one.failed
    ]
    return [f"**Some runs ended with an error**: {', '.join(failed)}."] if failed else []


def _listed(seeds: tuple[int, ...]) -> str:
    if len(seeds) > 2 and seeds == tuple(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]}–{seeds[-1]}"
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
