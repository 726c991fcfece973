"""Makes the record of a league that has been run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from claims.league import settings as frozen
from claims.league.at_work import AtWork
from claims.league.cells import COSTS, Played, portable
from claims.league.code import source_digest
from claims.league.contestants import base
from claims.league.plan import Choice, Plan, fingerprint
from claims.league.record import (
    ContestantRecord,
    FailureRecord,
    LeagueRecord,
    RunsRecord,
    SettingRecord,
)
from claims.league.runner import Entry
from claims.league.software import installed
from claims.measures import model_text, work_text
from fedmuster.core.config import to_table
from fedmuster.core.records import FloatArray


def record_of(
    entries: Sequence[Entry], plan: Plan, command: str, kept: Sequence[ContestantRecord] = ()
) -> LeagueRecord:
    """The record of a league that has been run, and of contestants of an earlier record."""
    contestants = [*kept, *(_contestant(entry, plan) for entry in entries)]
    return LeagueRecord(
        command=command,
        quick=plan.quick,
        version=frozen.VERSION,
        settings_sha256=frozen.digest(plan.settings),
        software=installed(),
        rates=plan.rates,
        finalists=plan.finalists,
        tuning_seeds=plan.tuning_seeds,
        judging_seeds=plan.judging_seeds,
        settings=tuple(
            SettingRecord(
                name=one.name,
                task=f"{one.data.name}, {one.partition_text}, {model_text(one.model)}, "
                f"{work_text(one.local.steps)} in batches of {one.local.batch_size} a job",
                target=one.target,
                seconds=one.judging.seconds,
                judging=one.judging.about,
                tuning=f"{one.tuning.about}; {one.tuning.seconds:g} s",
            )
            for one in plan.settings
        ),
        contestants=tuple(sorted(contestants, key=lambda one: one.label != base().label)),
    )


def numbers_of(played: Played) -> dict[str, Any]:
    """The numbers of one run, by their names in a record; None for a number that does not exist."""
    failed = played.failure is not None
    costs = {name: None if failed else getattr(played.costs, name) for name in COSTS}
    at_work = {name: None if failed else value for name, value in played.at_work._asdict().items()}
    return {
        "seconds": _finite(played.seconds),
        "final_accuracy": _finite(played.end),
        **{f"costs.{name}": value for name, value in costs.items()},
        **{f"at_work.{name}": value for name, value in at_work.items()},
    }


def _contestant(entry: Entry, plan: Plan) -> ContestantRecord:
    one = entry.contestant
    return ContestantRecord(
        label=one.label,
        in_rounds=one.in_rounds,
        policy=portable(to_table(one.policy)),
        federation=to_table(one.federation),
        servers=tuple(portable(to_table(server)) for server in one.servers),
        source_sha256=source_digest(type(one.policy)),
        fingerprint=fingerprint(one, plan),
        runs={
            setting.name: _runs(entry.choices[setting.name], entry.played[setting.name])
            for setting in plan.settings
        },
        failed=tuple(
            FailureRecord(setting=run.setting, use=run.use, seed=run.seed, **run.failure._asdict())
            for run in entry.failed
        ),
    )


def _runs(choice: Choice, played: Sequence[Played]) -> RunsRecord:
    numbers = [numbers_of(one) for one in played]

    def column(name: str) -> tuple[Any, ...]:
        return tuple(one[name] for one in numbers)

    return RunsRecord(
        learning_rate=choice.rate,
        server=portable(to_table(choice.server)),
        seconds=column("seconds"),
        final_accuracy=column("final_accuracy"),
        costs={name: column(f"costs.{name}") for name in COSTS},
        at_work={name: column(f"at_work.{name}") for name in AtWork._fields},
        curve=_mean_curve([one.curve for one in played if one.failure is None]),
    )


def _mean_curve(curves: Sequence[Sequence[float]]) -> tuple[float | None, ...]:
    """The mean over runs; None before the first evaluation of any run."""
    if not curves:
        return ()
    means: FloatArray = np.array(curves).mean(axis=0)
    return tuple(_finite(round(value, 4)) for value in means.tolist())


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
