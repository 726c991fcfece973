"""Why a client was or was not chosen, term by term: in a round, or in a decision without rounds.

The journal, or the run played again, says what the policy saw (:class:`Moment`). The policy says
how it chooses (:class:`Rule`). This module puts both into sentences and tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.explaining import COMMON_TERMS, Moment, Rule, rank
from fedmuster.core.words import capital, number, several
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.replay import Choice, Replayed
from fedmuster.experiments.sweep import find_cells
from fedmuster.federation import EdgeRow
from fedmuster.policies.explaining.simple_rules import BY_SCORE, Untold, rule_of
from fedmuster.report.cells import Cell
from fedmuster.report.job_history import read_jobs
from fedmuster.report.points import Point
from fedmuster.report.tables import Table
from fedmuster.worlds.real_federation import RealFederation


def rule_that_can_be_told(moment: Moment) -> Rule:
    """The rule of its policy, or that nothing can be said where terms are missing."""
    rule = moment.rule
    if not rule.needs:
        return rule
    missing = tuple(name for name in rule.needs if name not in moment.term_names)
    if missing:
        return Untold() if missing == ("score",) else Untold(missing=missing)
    if not moment.complete:
        return Untold(partly=True)
    merit = rule.merit(moment)
    passed = merit[moment.passed_over].max(initial=-np.inf)
    best = rule is not BY_SCORE or merit[moment.cohort].min(initial=np.inf) >= passed
    return rule if best else Untold(otherwise=True)


# Reading what the policy saw from the journal, or from the run played again.

_MARKS = ("available", "privacy_spent", "paid_before", "busy", "out_of_reach", "resting", "silent")
"""Columns that say who could be chosen, and why others could not; all else are terms."""


def find_run(folder: Path, *, policy: str | None = None, seed: int | None = None) -> Cell:
    """The run in ``folder``, or the one of an experiment's that is meant."""
    cells = [Cell(folder=path, spec=spec, path=folder) for path, spec in find_cells(folder).items()]
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


def from_journal(cell: Cell, point: Point) -> Moment:
    """What the journal itself says of the round or decision."""
    reader, round_number = JournalReader(cell.folder), point.round
    if point.decision is not None:
        return _from_jobs(cell, reader, point)
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
        point,
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


def from_replay(cell: Cell, point: Point, replayed: Replayed) -> Moment:
    """What the policy saw when the run was played again."""
    reader = JournalReader(cell.folder)
    notes: tuple[str, ...] = ()
    if not replayed.same_model:
        notes = (
            "The model was trained otherwise than in the journal (secure noise is never repeated): "
            "terms that follow from losses are not those of the run.",
        )
    choice = replayed.choice
    if choice is not None:
        _check_same_clients(cell, point, choice)
    return _moment(
        cell,
        reader,
        point,
        columns=replayed.scores,
        known=np.ones(len(replayed.scores["available"]), dtype=np.bool_),
        network=replayed.network,
        sure=True,
        notes=notes,
        choice=choice,
    )


def _from_jobs(cell: Cell, reader: JournalReader, point: Point) -> Moment:
    """A decision as the journal's jobs tell it: who was asked, and who was at work."""
    decision = point.decision
    assert decision is not None
    num_clients, now = len(reader.clients["group"]), point.at_seconds
    jobs = read_jobs(reader, len(reader))
    assert jobs is not None
    since = np.full(num_clients, np.nan)
    running = (jobs.decision < decision.decision[0]) & (jobs.ends_at_seconds > now)
    since[jobs.client[running]] = jobs.asked_at_seconds[running]
    busy = ~np.isnan(since)
    choice = Choice(point.round, decision.client, None, None, since)
    return _moment(
        cell,
        reader,
        point,
        columns={"available": (~busy).astype(np.float64), "busy": busy.astype(np.float64)},
        known=np.zeros(num_clients, dtype=np.bool_),
        network=None,
        sure=False,
        notes=(
            "The journal says who was asked and who was at work. It does not say who else was "
            "not available, nor what the policy thought.",
        ),
        choice=choice,
    )


def _check_same_clients(cell: Cell, point: Point, choice: Choice) -> None:
    assert point.decision is not None
    if not np.array_equal(point.decision.client, choice.clients):
        raise StateError(
            f"{cell.folder} cannot be played again: decision {point.number} asked "
            f"{point.decision.client.tolist()} in the journal, and {choice.clients.tolist()} now"
        )


def suffices(moment: Moment) -> bool:
    """Whether all is known that explains the round."""
    needs = moment.rule.needs
    told = not needs or (moment.complete and set(needs) <= set(moment.term_names))
    return moment.sure and told


def why_not_replayed(cell: Cell) -> str | None:
    """Why the run cannot be played again; None if it can."""
    if isinstance(cell.spec.world, RealFederation):
        return "it is a real federation"
    return next((config.reason for config in cell.spec.unavailable), None)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DecisionMoment(Moment):
    """All that is known of one decision of a run without rounds.

    Args:
        decision: its number.
        at_seconds: when it was made.
        aggregations: how often the server had aggregated before.
        busy_since_seconds: [K], since when each busy client was at work; NaN for the others.
    """

    decision: int
    at_seconds: float
    aggregations: int
    busy_since_seconds: FloatArray


def _moment(
    cell: Cell,
    reader: JournalReader,
    point: Point,
    *,
    columns: Mapping[str, FloatArray],
    known: BoolArray,
    network: EdgeRow | None,
    sure: bool,
    notes: tuple[str, ...],
    choice: Choice | None = None,
) -> Moment:
    identities = reader.clients.get("identity")
    absent = _reasons(columns, simulated=not isinstance(cell.spec.world, RealFederation))
    edges = None if network is None else network.edges
    budget = None if network is None else network.budget
    cohort, round_number = reader.cohorts[point.round - 1], point.round
    if choice is not None:
        cohort, round_number = choice.clients, choice.round
        edges, budget = choice.edges, choice.budget
    if budget is not None:
        nowhere = _unplaceable(columns, budget, columns["available"] == 1)
        absent |= {name: absent.get(name, False) | mask for name, mask in nowhere.items()}
    policy = cell.spec.policies[cell.label]
    told: dict[str, Any] = {
        "rule": rule_of(policy),
        "meaning": {**COMMON_TERMS, **policy.terms},
        "label": cell.label,
        "round": round_number,
        "cohort": cohort,
        "available": ~np.logical_or.reduce(list(absent.values())),
        "absent": absent,
        "terms": {name: of for name, of in columns.items() if name not in _MARKS},
        "known": known,
        "sure": sure,
        "names": None if identities is None else tuple(map(str, identities)),
        "edges": edges,
        "budget": budget,
        "notes": notes,
    }
    if choice is None or point.number is None:
        return Moment(**told)
    return DecisionMoment(
        **told,
        decision=point.number,
        at_seconds=point.at_seconds,
        aggregations=point.round - 1,
        busy_since_seconds=choice.busy_since_seconds,
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
    """Available clients that no edge covers, or that no covering edge can ever pay for."""
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


# Sentences and tables.

_ABSENT = {  # and "too_dear", of which there is more to say
    "not_joined": "it had not joined yet",
    "privacy_spent": "it has too little privacy left to be asked once more",
    "paid_before": "it paid for this round before the server died, and may have sent its update",
    "busy": "it is still busy with an earlier round",
    "out_of_reach": "no edge server covers it",
    "resting": "the server holds its answer, or has just used it, and lets it rest",
    "silent": "it left its last jobs unanswered and rests",
    "offline": "it was offline",
    "unknown": "it was not available (the journal does not say why)",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What to say and to show, in this order.

    Args:
        lines: of the round.
        tables: of the cohort, of those passed over, of the client's terms.
        verdict: of the client, if one was asked about.
    """

    lines: tuple[str, ...]
    tables: tuple[Table, ...]
    verdict: str | None = None


def explain(moment: Moment, *, client: int | None = None, rows: int = 10) -> Explanation:
    """The round, and what happened to one client.

    Args:
        moment: the round.
        client: the client to explain, if any.
        rows: the most clients in each table.
    """
    rule = rule_that_can_be_told(moment)
    merit = rule.merit(moment)
    lines = [_who(moment), f"{moment.label}: {rule.about(moment)}.", *moment.notes]
    worth = rule.worth(moment)
    if worth is not None:
        lines.insert(2, f"{capital(worth)}.")
    if not _shown_names(moment):
        more = "" if len(moment.cohort) <= rows else f" and {len(moment.cohort) - rows:,} others"
        first = ", ".join(moment.name(k) for k in moment.cohort[:rows].tolist())
        lines.append(f"Chosen: {first}{more}.")
    told = _with_infinity(moment, rule.unlimited)
    tables = [
        _table(told, "The cohort", _best_first(merit, moment.cohort), rows),
        _table(told, "The best of those not chosen", _best_first(merit, moment.passed_over), rows),
    ]
    verdict = None
    if client is not None:
        tables.append(_terms(told, client))
        verdict = _verdict(moment, client)
    shown = tuple(table for table in tables if table.rows)
    return Explanation(lines=tuple(lines), tables=shown, verdict=verdict)


def _with_infinity(moment: Moment, unlimited: tuple[str, ...]) -> Moment:
    """As it is shown: the unlimited terms of clients never tried are infinite, not nothing."""
    shown = {
        name: np.where(np.isnan(column) & moment.known, np.inf, column)
        for name, column in moment.terms.items()
        if name in unlimited
    }
    return replace(moment, terms={**moment.terms, **shown})


def _who(moment: Moment) -> str:
    when = f"Round {moment.round:,}"
    if isinstance(moment, DecisionMoment):
        where = "" if moment.edges is None else f" for edge {moment.edges[0]}"
        when = (
            f"Decision {moment.decision:,}{where} at {moment.at_seconds:.6g} s, after "
            f"{several(moment.aggregations, 'aggregation')}"
        )
    told = (
        f"{when}: {len(moment.cohort):,} chosen of {moment.num_available:,} that "
        f"were available, of {several(moment.num_clients, 'client')}"
    )
    reasons = [
        f"{int(np.count_nonzero(mask)):,} {name.replace('_', ' ')}"
        for name, mask in moment.absent.items()
        if mask.any() and name != "unknown"
    ]
    return f"{told} ({', '.join(reasons)})." if reasons else f"{told}."


def _verdict(moment: Moment, client: int) -> str:
    name, rule = moment.name(client), rule_that_can_be_told(moment)
    name = capital(name) if moment.names is None else name
    if not moment.available[client]:
        reason = next(reason for reason, mask in moment.absent.items() if mask[client])
        why = _why_absent(moment, client, reason)
        return f"{name} could not be chosen: {why}."
    edge = moment.edge_of(client)
    where = "" if edge is None else f" for edge {edge}"
    if moment.chose(client):
        return f"{name} was chosen{where}: {rule.chosen(moment, client)}."
    return f"{name} was not chosen: {rule.passed_over(moment, client)}."


def _why_absent(moment: Moment, client: int, reason: str) -> str:
    if isinstance(moment, DecisionMoment):
        if reason == "busy":
            return f"it was busy since {moment.busy_since_seconds[client]:.6g} s"
        if reason == "out_of_reach":
            return "the edge server that asked does not cover it"
    return _ABSENT.get(reason) or _too_dear(moment, client)


def _too_dear(moment: Moment, client: int) -> str:
    """It costs more than any edge that covers it may spend at all."""
    assert moment.budget is not None
    cost = moment.at_edges("cost")[client]
    budget = "the whole budget of"
    if isinstance(moment, DecisionMoment):
        budget = "what it could still spend,"
    told = (
        f"at edge {edge} it costs {number(float(cost[edge]))}, more than {budget} "
        f"{number(float(moment.budget[edge]))}"
        for edge in np.flatnonzero(np.isfinite(cost)).tolist()
    )
    return ", and ".join(told)


def _best_first(merit: FloatArray, clients: IntArray) -> IntArray:
    return clients[np.argsort(-merit[clients], kind="stable")]


def _table(moment: Moment, title: str, clients: IntArray, most: int) -> Table:
    clients = clients[moment.known[clients]]
    shown = clients[:most]
    at_edges = moment.num_edges > 0
    names = _shown_names(moment)
    rows = []
    for client in shown.tolist() if names else ():
        edge = _edge_to_show(moment, client) if at_edges else 0
        place = [str(edge)] if at_edges else []
        values = (number(_value(moment, name, client, edge)) for name in names)
        rows.append((moment.name(client), *place, *values))
    hidden = len(clients) - len(shown)
    more = f" (the first {len(shown):,} of {len(clients):,})" if hidden else ""
    header = ("client", *(("edge",) if at_edges else ()), *names)
    return Table(title=f"{title}{more}", columns=header, rows=tuple(rows), footnotes=())


def _shown_names(moment: Moment) -> list[str]:
    """The terms of which anything is known."""
    return [name for name in moment.term_names if np.isfinite(_column(moment, name)).any()]


def _terms(moment: Moment, client: int) -> Table:
    """Every term of one client, its rank if it was available, what the cohort has."""
    everyone = np.flatnonzero(moment.available)
    rows = []
    for name, column in moment.terms.items():
        if np.isnan(column[client]) and ("[" in name or np.isnan(column).all()):
            continue
        cohort = column[moment.cohort]
        cohort = cohort[~np.isnan(cohort)]
        known = everyone[~np.isnan(column[everyone])]
        place = "–"
        if moment.available[client] and not np.isnan(column[client]):
            place = f"{rank(column, known, client):,} of {len(known):,}"
        span = "–"
        if len(cohort):
            span = f"{number(float(cohort.min()))} … {number(float(cohort.max()))}"
        meaning = moment.meaning.get(name.partition("[")[0], "")
        rows.append((name, number(float(column[client])), place, span, meaning))
    return Table(
        title=f"The terms of {moment.name(client)}",
        columns=("term", "value", "rank, highest first", "in the cohort", "what it is"),
        rows=tuple(rows),
        footnotes=(),
    )


def _column(moment: Moment, name: str) -> FloatArray:
    return moment.terms[name] if name in moment.terms else moment.at_edges(name)


def _value(moment: Moment, name: str, client: int, edge: int) -> float:
    column = _column(moment, name)
    return float(column[client] if name in moment.terms else column[client, edge])


def _edge_to_show(moment: Moment, client: int) -> int:
    """Where it trains, or else the cheapest that covers it."""
    edge = moment.edge_of(client)
    if edge is not None:
        return edge
    cost = np.nan_to_num(moment.at_edges("cost")[client], nan=np.inf)
    return int(np.argmin(cost))
