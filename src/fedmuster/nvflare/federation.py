"""A job while its server lives: who is asked, what came back, what is learned and on record."""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple, Self

import numpy as np

from fedmuster.core.errors import CallOrderError
from fedmuster.core.records import (
    SHORTEST_SECONDS,
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    Problem,
    Selection,
)
from fedmuster.core.selector import Selector
from fedmuster.federation import RoundRow
from fedmuster.nvflare.clients import Clients
from fedmuster.nvflare.grants import Grant
from fedmuster.nvflare.replies import parameters_fault, signals_of, update_vector
from fedmuster.nvflare.run_record import Record, Saved
from fedmuster.nvflare.settings import Settings
from fedmuster.privacy.budget import Budget, PrivacyRow, require_ledger
from fedmuster.training.combine import sketch
from fedmuster.training.trainer import LearningRow

log = logging.getLogger("fedmuster.nvflare")

_MOST_NAMES: Final = 10
_ALL_ROUNDS: Final = 2
"""After this many rounds in which the cohort was every client there, a warning says so."""


class EndedError(Exception):
    """The run is over before its last round; nothing is wrong."""


class Reply(NamedTuple):
    """What FLARE received from a client, unpacked.

    ``kind`` says whether the parameters are a model or a difference from the one that was sent;
    ``fault`` why the reply is no use, where FLARE or the workflow says so already; ``steps`` is how
    many steps the client says it took, by which FLARE weighs replies.
    """

    parameters: Any
    metrics: Any
    kind: str
    fault: str | None = None
    steps: float = 1.0


class Answer(NamedTuple):
    """What a policy may learn from a usable reply."""

    latency_seconds: float
    signals: dict[str, float]
    sketch: FloatArray | None


@dataclass(kw_only=True, slots=True, eq=False)
class OpenRound:
    """A round while its clients work."""

    selection: Selection
    names: list[str]
    available: BoolArray
    scores: dict[str, FloatArray]
    amounts: dict[str, float] = field(default_factory=dict)
    began: float | None = None
    taken: dict[str, float] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    kind: str | None = None

    @property
    def number(self) -> int:
        """Its number; the first is 1."""
        return self.selection.round


class Federation:
    """The clients, the selector and the record of one job.

    FLARE calls from threads of its own while a round is open; what they change is behind a lock.
    """

    def __init__(self, settings: Settings, record: Record) -> None:
        self.settings = settings
        self.clients = Clients()
        self.elapsed_seconds = 0.0
        self.rounds_done = 0
        self.model: Mapping[str, Any] = {}
        """The parameters of the global model, as far as known."""
        self.open_round: OpenRound | None = None
        self._record = record
        self._lock = Lock()
        self._selector: Selector[Any] | None = None
        self._kinds: dict[str, str] = {}  # what each client sent last: models or differences
        self._closed: list[RoundRow] = []  # not yet on record
        self._metrics: dict[str, float] = {}  # of the round that closed last
        self._rounds_of_all: int | None = 0
        self.budget: Budget | None = None
        """The clients' privacy; None where nothing is promised, or nobody is known."""
        self.rounds_chosen = 0
        """How many cohorts this server has chosen."""
        self.expected = 0
        """How many clients can be asked as soon as they ask for work."""
        if record.saved is not None:
            self._load(record.saved)

    @classmethod
    def start(cls, settings: Settings, *, rounds: int) -> Self:
        """Begin a run in the settings' folder, or go on with the one that is there."""
        record = Record.open(settings.folder, settings.experiment(rounds=rounds))
        try:
            return cls(settings, record)
        except BaseException:
            record.close()
            raise

    def _load(self, saved: Saved) -> None:
        source = str(self.settings.folder)
        self._selector = Selector.from_bytes(saved.selector, self.settings.policy, source=source)
        self.clients = Clients.of_plain(saved.parts["clients"])
        self._kinds = dict(saved.parts["kinds"])
        if saved.budget is not None:
            require_ledger(self._record.ledger)
        self._open_budget()
        if self.budget is not None and saved.budget is not None:
            self.budget.load(saved.budget, after_round=saved.round)
        self.elapsed_seconds, self.rounds_done = saved.elapsed_seconds, saved.round
        self.model = saved.model or {}

    def _open_budget(self) -> None:
        if self.settings.privacy is not None:
            self.budget = Budget(
                self.settings.privacy,
                self._record.ledger,
                run=self._record.run,
                identities=self.clients.names,
                seed=self.settings.seed,
            )

    def close(self) -> None:
        """Close the record and the ledger."""
        if self.budget is not None:
            self.budget.close()
        self._record.close()

    @property
    def saved(self) -> Saved | None:
        """What was on record when the server started."""
        return self._record.saved

    @property
    def ending(self) -> str | None:
        """Why the run is over before its last round, if it is."""
        return self._record.ending

    @property
    def rounds_closed(self) -> int:
        """How many rounds are over, whether or not they are on record yet."""
        return self.rounds_done + len(self._closed)

    # --- Who is asked ---------------------------------------------------------------------------

    def free(self, present: Sequence[str]) -> BoolArray:
        """bool[K], the clients that can be asked; new ones among ``present`` join.

        Raises:
            EndedError: privacy leaves too few of them.
        """
        newcomers = self.clients.meet(present)
        if newcomers > 0 and self._selector is not None:
            self._selector.join(newcomers)
            if self.budget is not None:
                self.budget.join(self.clients.names[-newcomers:])
        elif newcomers > 0:
            problem = Problem(num_clients=len(self.clients), cohort_size=self.settings.cohort_size)
            self._selector = Selector(self.settings.policy, problem, seed=self.settings.seed)
            self._open_budget()
        here = self.clients.index(present)
        may = self._may_be_asked(here)
        self.expected = int(np.count_nonzero(may[here]))
        return self.clients.available(present) & may

    def _may_be_asked(self, here: IntArray) -> BoolArray:
        """bool[K], the clients that privacy lets take part in the open round."""
        if self.budget is None or self._selector is None:
            return np.ones(len(self.clients), dtype=np.bool_)
        ending = self.budget.ending(cohort_size=self.settings.cohort_size)
        if ending is not None:
            raise EndedError(ending)
        # Asked before a crash: what they sent then may be out, so they must not send again.
        may = self.budget.able.copy()
        may[self.budget.debited(self._selector.round)] = False
        if self.budget.able[here].any() and not may[here].any():
            self._skip_round()
            return self.budget.able
        return may

    def _skip_round(self) -> None:
        """Close a round for which everybody has paid before a crash: it is lost."""
        assert self._selector is not None
        nobody = np.zeros(len(self.clients), dtype=np.bool_)
        selection = self._selector.select(available=nobody)
        log.warning("round %d is lost: all clients had paid for it before", selection.round)
        self.open_round = OpenRound(selection=selection, names=[], available=nobody, scores={})
        self.end_round()

    def choose(self, available: BoolArray) -> OpenRound:
        """Let the policy choose among the free clients, of which there is at least one."""
        if self._selector is None or not available.any():
            raise CallOrderError("choose: no client can be asked")
        budget = self.budget
        selection = self._selector.select(
            available=available,
            cohort_size=self.settings.num_to_ask,
            privacy_left=None if budget is None else budget.left,
        )
        scores = {"available": available.astype(np.float64), **self._selector.scores()}
        names = [self.clients.names[client] for client in selection.clients.tolist()]
        amounts: dict[str, float] = {}
        if budget is not None:  # from here on clients are asked: every one must have paid
            grant = budget.debit(selection.round, selection.clients)
            amounts = dict(zip(names, grant.amounts.tolist(), strict=True))
        self.open_round = OpenRound(
            selection=selection, names=names, available=available, scores=scores, amounts=amounts
        )
        log.info(
            "round %d: %s chose %d of %d free clients: %s",
            selection.round,
            self.settings.policy.name,
            len(names),
            np.count_nonzero(available),
            _some(names),
        )
        self.rounds_chosen += 1
        self._warn_of_everybody(len(names))
        return self.open_round

    def _warn_of_everybody(self, chosen: int) -> None:
        """Warn once when there is nothing to choose, round after round."""
        if self._rounds_of_all is None or self.settings.policy.cohort_rule == "everyone":
            return
        self._rounds_of_all = self._rounds_of_all + 1 if chosen == len(self.clients) else 0
        if self._rounds_of_all == _ALL_ROUNDS:
            self._rounds_of_all = None
            log.warning(
                "the cohort was all %d clients in each of the last %d rounds, so %s chooses "
                "nothing: start more clients, or write a smaller num_clients",
                chosen,
                _ALL_ROUNDS,
                self.settings.policy.name,
            )

    # --- What comes back; FLARE calls from its own threads --------------------------------------

    def sent(self) -> None:
        """The open round's work is there for its clients to take."""
        if self.open_round is not None:
            self.open_round.began = time.monotonic()

    def taken(self, name: str) -> None:
        """A client has taken its work; a client that takes it again has lost it meanwhile."""
        with self._lock:
            if self.open_round is not None:
                self.open_round.taken.setdefault(name, time.monotonic())

    def arrived(self, round_: OpenRound, name: str, reply: Reply) -> bool:
        """Judge a reply: whether the workflow may aggregate it."""
        now = time.monotonic()
        fault = reply.fault or parameters_fault(reply.parameters, self.model)
        with self._lock:
            if round_ is not self.open_round or name not in round_.names:
                log.warning("%s sent a reply to a round that is over: it is not used", name)
                return False
            if name in round_.answers or name in round_.refused:
                log.warning("%s sent a second reply: it is not used", name)
                return False
            fault = fault or self._kind_fault(round_, name, reply.kind)
            if fault is not None:
                round_.refused[name] = fault
                log.warning("round %d: the reply of %s is refused: %s", round_.number, name, fault)
                return False
            began = now if round_.began is None else round_.began
            taken = round_.taken.get(name, now)
            round_.answers[name] = self.answer(
                reply, sent=self.model, began=began, taken=taken, now=now
            )
            return True

    def _kind_fault(self, round_: OpenRound, name: str, kind: str) -> str | None:
        """Why a reply does not fit the others of its round, where FLARE would mix the two kinds."""
        self._kinds[name] = kind
        if round_.kind is None:  # one vote each, so that no single client decides
            ((round_.kind, _),) = Counter(self._kinds.values()).most_common(1)
        if kind == round_.kind:
            return None
        return f"its parameters are {kind}, where most clients send {round_.kind}"

    def answer(
        self, reply: Reply, *, sent: Mapping[str, Any], began: float, taken: float, now: float
    ) -> Answer:
        """What a usable reply tells, by the server's clock.

        Args:
            reply: what came.
            sent: the model that the client trained from.
            began: when the work was there to be taken.
            taken: when the client took it.
            now: when the reply came.
        """
        size, sketched = self.settings.policy.wanted_sketch_size, None
        if size > 0 and sent:
            vector = update_vector(reply.parameters, sent, is_difference=reply.kind == "DIFF")
            sketched = sketch(vector[None], size=size, seed=self.settings.seed)[0]
        # A free client asks for work once in pull_seconds: its waiting for that is not its own.
        excused = min(taken - began, self.settings.pull_seconds)
        return Answer(
            latency_seconds=max(now - began - excused, SHORTEST_SECONDS),
            # Under a promise of privacy nothing was paid for metrics.
            signals={} if self.settings.privacy is not None else signals_of(reply.metrics),
            sketch=sketched,
        )

    def grant_for(self, name: str) -> Grant | None:
        """What a client has paid for in the open round; None where nothing is promised."""
        round_, privacy = self.open_round, self.settings.privacy
        if round_ is None or privacy is None or name not in round_.amounts:
            return None
        return Grant(
            run=self._record.run,
            round=round_.number,
            amount=round_.amounts[name],
            mechanism=privacy.mechanism,
        )

    @property
    def has_enough(self) -> bool:
        """Whether the round needs no more answers."""
        round_ = self.open_round
        return round_ is not None and len(round_.answers) >= self.settings.cohort_size

    # --- What is learned, and put on record -----------------------------------------------------

    def end_round(self) -> int:
        """Learn from the open round; how many of its answers entered the model."""
        with self._lock:
            round_, self.open_round = self.open_round, None
        if round_ is None or self._selector is None:
            return 0
        silent = [n for n in round_.names if n not in round_.answers and n not in round_.refused]
        self.clients.missing(silent)
        if silent:
            log.warning(
                "round %d: %d of %d clients have not answered in time, and are not asked again "
                "before they ask for work: %s",
                round_.number,
                len(silent),
                len(round_.names),
                _some(silent),
            )
        lasted = 0.0 if round_.began is None else time.monotonic() - round_.began
        feedback = _feedback(round_, lasted)
        report = self._selector.observe(feedback)
        done = feedback.answered
        self.clients.took(feedback.clients[done], feedback.latency_seconds[done])
        self.elapsed_seconds += lasted
        losses = feedback.signals.get("loss")
        self._metrics = {
            name: float(np.nanmean(values))
            for name, values in feedback.signals.items()
            if np.isfinite(values).any()
        }
        self._closed.append(
            RoundRow(
                round=round_.number,
                seconds=lasted,
                num_available=int(np.count_nonzero(round_.available)),
                num_completed=len(round_.names) - len(report.not_completed),
                num_refused=sum(report.refused.values()) + len(round_.refused),
                clients=round_.selection.clients,
                learning=LearningRow(
                    train_loss=np.nan if losses is None else float(np.nanmean(losses)),
                    num_aggregated=len(round_.answers),
                    rejected=np.sort(self.clients.index(round_.refused)),
                ),
                privacy=PrivacyRow() if self.budget is None else self.budget.standing(),
                scores=round_.scores,
            )
        )
        return len(round_.answers)

    def commit(self, workflow: Mapping[str, Any], *, ending: str | None = None) -> None:
        """Put the closed rounds on record; from then on they count.

        Args:
            workflow: what the workflow remembers.
            ending: why the run is over before its last round, if it is.
        """
        if self._selector is None or (not self._closed and ending is None):
            return
        self._record.commit(
            self._closed,
            Saved(
                round=self.rounds_closed,
                elapsed_seconds=self.elapsed_seconds,
                selector=self._selector.to_bytes(),
                model=dict(self.model) or None,
                workflow=workflow,
                budget=None if self.budget is None else self.budget.to_bytes(),
                parts={"clients": self.clients.to_plain(), "kinds": self._kinds},
            ),
            clients=self.clients,
            cohort_size=self.settings.cohort_size,
            metrics=self._metrics,
            ending=ending,
        )
        self.rounds_done, self._closed = self.rounds_closed, []


def _feedback(round_: OpenRound, lasted: float) -> Feedback:
    """One row for each client of the cohort; a client without a usable answer did not complete."""
    answers = [round_.answers.get(name) for name in round_.names]
    completed = np.array([answer is not None for answer in answers], dtype=np.bool_)
    told = [answer.signals for answer in answers if answer is not None]
    counts = Counter(name for signals in told for name in signals)
    # What a few clients leave out counts as usual: NaN would make their answers no answers.
    common = sorted(name for name, count in counts.items() if 2 * count >= len(told))
    usual = {name: float(np.median([t[name] for t in told if name in t])) for name in common}
    sketches = [answer.sketch for answer in answers if answer is not None]
    return Feedback(
        round=round_.number,
        clients=round_.selection.clients,
        completed=completed,
        latency_seconds=np.array([1.0 if a is None else a.latency_seconds for a in answers]),
        signals={
            name: np.array(
                [np.nan if a is None else a.signals.get(name, usual[name]) for a in answers]
            )
            for name in common
        },
        sketches=_rows(sketches, completed),
        round_seconds=lasted,
    )


def _rows(sketches: Sequence[FloatArray | None], completed: BoolArray) -> FloatArray | None:
    known = [each for each in sketches if each is not None]
    if not known or len(known) < len(sketches):
        return None
    rows = np.full((len(completed), len(known[0])), np.nan)
    rows[completed] = np.stack(known)
    return rows


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} … ({len(names)} in all)"
