"""Why these clients were chosen, for people: sentences and tables."""

from dataclasses import dataclass, replace

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report.explain.moment import Moment, rank
from fedmuster.report.explain.rule import unlimited_terms
from fedmuster.report.explain.rules import rule_for
from fedmuster.report.explain.words import MEANING, capital, number, several
from fedmuster.report.tables import Table

_ABSENT = {  # and "too_dear", of which there is more to say
    "not_joined": "it had not joined yet",
    "privacy_spent": "it has too little privacy left to be asked once more",
    "paid_before": "it paid for this round before the server died, and may have sent its update",
    "busy": "it is still busy with an earlier round",
    "out_of_reach": "no edge server covers it",
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
        client: who is asked about; None for nobody in particular.
        rows: at most so many of the cohort, and of those passed over, in the tables.
    """
    rule = rule_for(moment)
    merit = rule.merit(moment)
    lines = [_who(moment), f"{moment.label}: {rule.about(moment)}.", *moment.notes]
    worth = rule.worth(moment)
    if worth is not None:
        lines.insert(2, f"{capital(worth)}.")
    if not _shown_names(moment):
        lines.append(f"Chosen: {', '.join(moment.name(k) for k in moment.cohort[:rows].tolist())}.")
    told = _with_infinity(moment, unlimited_terms(rule))
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
    told = (
        f"Round {moment.round:,}: {len(moment.cohort):,} chosen of {moment.num_available:,} that "
        f"were available, of {several(moment.num_clients, 'client')}"
    )
    reasons = [
        f"{int(np.count_nonzero(mask)):,} {name.replace('_', ' ')}"
        for name, mask in moment.absent.items()
        if mask.any() and name != "unknown"
    ]
    return f"{told} ({', '.join(reasons)})." if reasons else f"{told}."


def _verdict(moment: Moment, client: int) -> str:
    name, rule = moment.name(client), rule_for(moment)
    name = capital(name) if moment.names is None else name
    if not moment.available[client]:
        reason = next(reason for reason, mask in moment.absent.items() if mask[client])
        why = _ABSENT.get(reason) or _too_dear(moment, client)
        return f"{name} could not be chosen: {why}."
    edge = moment.edge_of(client)
    where = "" if edge is None else f" for edge {edge}"
    if moment.chose(client):
        return f"{name} was chosen{where}: {rule.chosen(moment, client)}."
    return f"{name} was not chosen: {rule.passed_over(moment, client)}."


def _too_dear(moment: Moment, client: int) -> str:
    """It costs more than any edge that covers it may spend at all."""
    assert moment.budget is not None
    cost = moment.at_edges("cost")[client]
    told = (
        f"at edge {edge} it costs {number(float(cost[edge]))}, more than the whole budget of "
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
        values = (number(float(_value(moment, name, client, edge))) for name in names)
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
        meaning = MEANING.get(name.partition("[")[0], "")
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
    if name in moment.terms:
        return float(moment.terms[name][client])
    return float(moment.at_edges(name)[client, edge])


def _edge_to_show(moment: Moment, client: int) -> int:
    """Where it trains, or else the cheapest that covers it."""
    edge = moment.edge_of(client)
    if edge is not None:
        return edge
    cost = np.nan_to_num(moment.at_edges("cost")[client], nan=np.inf)
    return int(np.argmin(cost))
