"""Where it is known from what a policy saw: its journal, or its run played again."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.experiments.replay import Replayed
from fedmuster.experiments.run import SPEC_NAME
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import find_cells
from fedmuster.report.cells import Cell
from fedmuster.report.explain.moment import Moment
from fedmuster.report.explain.rules import rule_of
from fedmuster.simulation import EdgeRow
from fedmuster.worlds.federation import Federation

_MARKS = ("available", "privacy_spent", "paid_before", "busy", "out_of_reach")
"""Columns that say who could be chosen, and why others could not; all else are terms."""


def find_run(folder: Path, *, policy: str | None = None, seed: int | None = None) -> Cell:
    """The run in ``folder``, or the one of an experiment's that is meant."""
    cells = [
        Cell(folder=path, spec=Experiment.load(path / SPEC_NAME), path=folder)
        for path in find_cells(folder)
    ]
    found = [
        cell
        for cell in cells
        if policy in (None, cell.label) and (seed is None or seed == cell.seed)
    ]
    if len(found) == 1:
        return found[0]
    labels = ", ".join(dict.fromkeys(cell.label for cell in cells))
    seeds = ", ".join(str(number) for number in dict.fromkeys(cell.seed for cell in cells))
    raise ConfigError(
        f"{folder} holds {len(cells)} runs, and {len(found) or 'none'} of them fit: choose one "
        f"with --policy (one of: {labels}) and --seed (one of: {seeds}), or give its own folder"
    )


def open_journal(cell: Cell, round_number: int) -> JournalReader:
    """The journal, which must hold that round."""
    done = rounds_done(cell.folder)
    if done == 0:
        raise StateError(f"{cell.folder} has no rounds yet: there is nothing to explain")
    if not 1 <= round_number <= done:
        raise ConfigError(
            f"--round {round_number}: {cell.folder} has played rounds 1 … {done:,}; give one of "
            "them"
        )
    return JournalReader(cell.folder)


def from_journal(cell: Cell, round_number: int) -> Moment:
    """What the journal itself says of the round."""
    reader = open_journal(cell, round_number)
    columns, known = _written(reader, round_number)
    told = "available" in columns
    there = columns.get("available", np.ones(len(known)))
    num_available = int(reader.columns["num_available"][round_number - 1])
    notes = []
    if not told and num_available < len(known):
        notes.append(
            f"The journal does not say which {num_available:,} clients were available: it is as if "
            "all were."
        )
    if rule_of(cell.spec.policies[cell.label]).needs:
        notes += _missing(known, joined=~np.isnan(there))
    return _moment(
        cell,
        reader,
        round_number,
        columns={**columns, "available": there},
        known=known,
        network=None if reader.edge_rows is None else reader.edge_rows[round_number - 1],
        sure=told or num_available == len(known),
        notes=tuple(notes),
    )


def _missing(known: BoolArray, *, joined: BoolArray) -> list[str]:
    """Whose terms the journal does not hold, in words."""
    if not known.any():
        return ["Nobody was watched in this round: the journal has the cohort alone."]
    if known[joined].all():
        return []
    watched = f"{np.count_nonzero(known):,} of {len(known):,} clients were watched"
    return [f"{watched}; ranks are among these."]


def from_replay(cell: Cell, round_number: int, replayed: Replayed) -> Moment:
    """What the policy saw when the run was played again."""
    reader = open_journal(cell, round_number)
    notes: tuple[str, ...] = ()
    if not replayed.same_model:
        notes = (
            "The model was trained otherwise than in the journal (secure noise is never repeated): "
            "terms that follow from losses are not those of the run.",
        )
    return _moment(
        cell,
        reader,
        round_number,
        columns=replayed.scores,
        known=np.ones(len(replayed.scores["available"]), dtype=np.bool_),
        network=replayed.network,
        sure=True,
        notes=notes,
    )


def suffices(moment: Moment) -> bool:
    """Whether all is known that explains the round."""
    needs = rule_of(moment.policy).needs
    told = not needs or (moment.complete and set(needs) <= set(moment.term_names))
    return moment.sure and told


def can_be_replayed(cell: Cell) -> bool:
    """Whether the run was a simulation."""
    return not isinstance(cell.spec.world, Federation)


def _moment(
    cell: Cell,
    reader: JournalReader,
    round_number: int,
    *,
    columns: Mapping[str, FloatArray],
    known: BoolArray,
    network: EdgeRow | None,
    sure: bool,
    notes: tuple[str, ...],
) -> Moment:
    identities = reader.clients.get("identity")
    absent = _reasons(columns, simulated=can_be_replayed(cell))
    if network is not None:
        nowhere = _unplaceable(columns, network.budget, columns["available"] == 1)
        absent |= {name: absent.get(name, False) | mask for name, mask in nowhere.items()}
    return Moment(
        policy=cell.spec.policies[cell.label],
        label=cell.label,
        round=round_number,
        cohort=reader.cohorts[round_number - 1],
        available=~np.logical_or.reduce(list(absent.values())),
        absent=absent,
        terms={name: of for name, of in columns.items() if name not in _MARKS},
        known=known,
        sure=sure,
        names=None if identities is None else tuple(map(str, identities)),
        edges=None if network is None else network.edges,
        budget=None if network is None else network.budget,
        notes=notes,
    )


def _reasons(columns: Mapping[str, FloatArray], *, simulated: bool) -> dict[str, BoolArray]:
    """Why clients were not available; of several reasons the first."""
    there = columns["available"]
    reasons = {"not_joined": np.isnan(there)}
    gone = there == 0
    for name in _MARKS[1:]:
        if name in columns:
            reasons[name] = gone & (columns[name] == 1)
            gone = gone & ~reasons[name]
    # A federation whose journal has none of these marks may have had any reason.
    told = simulated or any(name in columns for name in _MARKS[1:])
    reasons["offline" if told else "unknown"] = gone
    return reasons


def _unplaceable(
    columns: Mapping[str, FloatArray], budget: FloatArray, there: BoolArray
) -> dict[str, BoolArray]:
    """Who is there, but no edge covers it, or none that does could ever pay for it."""
    costs = [columns.get(f"cost[{edge}]") for edge in range(len(budget))]
    if any(cost is None for cost in costs):
        return {}
    cost = np.stack([cost for cost in costs if cost is not None], axis=1)
    covered = np.isfinite(cost).any(axis=1)
    payable = (cost <= budget).any(axis=1)
    return {"out_of_reach": there & ~covered, "too_dear": there & covered & ~payable}


def _written(reader: JournalReader, round_number: int) -> tuple[dict[str, FloatArray], BoolArray]:
    """The scores of the round as [K] columns, and whose they are."""
    num_clients = len(reader.clients["group"])
    known = np.zeros(num_clients, dtype=np.bool_)
    (found,) = np.nonzero(reader.score_rounds == round_number)
    if len(found) == 0:
        return {}, known
    watched = reader.clients["watched"]
    known[watched] = True
    columns = {}
    for name, values in reader.scores.items():
        columns[name] = np.full(num_clients, np.nan)
        row = values[int(found[0])]  # shorter, if some have joined since
        columns[name][watched[: len(row)]] = row
    if "available" in columns:
        known &= ~np.isnan(columns["available"])
    return columns, known
