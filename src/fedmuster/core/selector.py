"""The stateful shell that users hold: validates data, orders calls, saves and restores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedmuster.core import state as states
from fedmuster.core.checking import checked_view, cohort_fault, warn_if_everyone
from fedmuster.core.config import from_table, to_table
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import (
    CallOrderError,
    ConfigError,
    DataError,
    FeedbackError,
    PolicyError,
    StateError,
)
from fedmuster.core.feedback import FeedbackReport, Message, clean, clean_late, clean_rows, read
from fedmuster.core.files import write_file
from fedmuster.core.leftovers import with_leftovers
from fedmuster.core.liveness import NEWCOMER_QUOTA, REST_AFTER, Liveness
from fedmuster.core.policy import Policy, as_policy
from fedmuster.core.records import (
    COUNTS,
    LARGEST_COUNT,
    PER_CLIENT,
    AskLoss,
    BoolArray,
    Feedback,
    FloatArray,
    Forecast,
    IntArray,
    Problem,
    RoundView,
    Selection,
    Truth,
    checked_seed,
    is_count,
    shortened,
)
from fedmuster.core.streams import LIVENESS, POLICY, stream
from fedmuster.core.tickets import Part, Tickets
from fedmuster.core.trust.report_check import ReportCheck
from fedmuster.core.trust.update_check import SKETCH_SIZE

S = TypeVar("S")

_FORMAT = 5
_READABLE = (3, _FORMAT)  # 3 has no tickets: a selector of rounds; 4 was never released
_PENDING = ("clients", "edges", "inclusion", "features", "order", "preferred", "losses")


class Selector(Generic[S]):
    """Chooses clients with a policy and teaches it their answers, in rounds or by tickets.

    In rounds, ``select()`` chooses a cohort and ``observe`` closes the round. Without rounds,
    ``select(count=…)`` gives out tickets while others are open, ``observe`` takes answers to any
    open tickets in any order, and ``give_up`` closes tickets that were not answered in time.

    Args:
        policy: how to choose: a policy, or its name with settings, such as "bsfl:alpha=3".
        problem: what is known of the clients for the whole run.
        seed: the same seed and the same feedback give the same cohorts, bit for bit.
        rest_after: how many jobs in a row a client may leave unanswered before it rests, see
            :mod:`fedmuster.core.liveness`; 0 for the published rules, which ask it again.
        newcomer_quota: the largest share of places, in (0, 1], for clients that joined after the
            first decision and have not answered yet; 1 for no limit.
        check_reports: whether times, signals and losses that clients report are checked before the
            policy hears them, see :class:`~fedmuster.core.trust.report_check.ReportCheck`.

    Example:
        >>> from fedmuster.policies import Random
        >>> selector = Selector(Random(), Problem(num_clients=10, cohort_size=3), seed=7)
        >>> cohort = selector.select()
        >>> len(cohort.clients)
        3
        >>> seconds = np.array([1.0, 2.0, -1.0])
        >>> answers = Feedback(round=1, clients=cohort.clients, latency_seconds=seconds)
        >>> report = selector.observe(answers)
        >>> dict(report.refused), selector.round
        ({'latency not finite and positive': 1}, 2)

        Without rounds:

        >>> first = selector.select(count=2)
        >>> second = selector.select(count=1)  # while the first two are out
        >>> answer = Feedback(
        ...     tickets=second.tickets, clients=second.clients, latency_seconds=np.array([0.5])
        ... )
        >>> selector.observe(answer).accepted, selector.give_up(first.tickets).not_completed.shape
        (1, (2,))
    """

    def __init__(
        self,
        policy: Policy[S] | str,
        problem: Problem,
        *,
        seed: int = 0,
        rest_after: int = REST_AFTER,
        newcomer_quota: float = NEWCOMER_QUOTA,
        check_reports: bool = False,
    ) -> None:
        self.seed = checked_seed(seed, owner="Selector")
        self.policy: Policy[S] = as_policy(policy, owner="Selector")
        self.problem = problem
        self.round = 1
        """The round that is open, or that the next ``select`` opens.

        Without rounds, a round ends when ``cohort_size`` clients have been asked in it, or when no
        ticket is open any more.
        """
        self.decisions = 0
        """How often clients were chosen."""
        self.pending: Selection | None = None
        """The cohort of the round that is open."""
        self.tickets = Tickets(problem.num_clients)
        """The tickets that are open, where clients are asked while others are out."""
        self.unanswered: IntArray | None = None
        """int64[K], how many invitations of each client to closed rounds have an unknown end; None
        for policies that do not hear late answers."""
        if self.policy.hears_late:
            self.unanswered = np.zeros(problem.num_clients, dtype=np.int64)
        self.liveness = Liveness(
            problem.num_clients, rest_after=rest_after, newcomer_quota=newcomer_quota
        )
        """Silent clients, which rest, and newcomers, which have a quota."""
        self.report_check = ReportCheck() if check_reports else None
        """What is known of clients' reports; None where they are not checked."""
        self.kept_back: BoolArray | None = None
        """bool[K], the available clients that the last decision kept from the policy, because they
        rest or are newcomers beyond the quota; None for none."""
        self._asked = 0  # in this round
        self._view: RoundView | None = None
        self._view_state: S | None = None  # that chose; without clients that joined since
        self._wanted: IntArray | None = None  # Selection.wanted of the view that is open
        self.refused: Counter[str] = Counter()
        """Feedback rows refused so far, by reason."""
        self.state = self.policy.init(problem)

    def select(
        self,
        *,
        count: int | None = None,
        available: ArrayLike | None = None,
        cohort_size: int | None = None,
        features: ArrayLike | None = None,
        edges: EdgeView | None = None,
        truth: Truth | None = None,
        privacy_left: ArrayLike | None = None,
        ask_loss: AskLoss | None = None,
        forecast: Forecast | None = None,
    ) -> Selection:
        """Choose the cohort of this round, or with ``count`` further clients while others are out.

        Args:
            count: how many clients to ask while others are out. Their tickets are in
                ``Selection.tickets``; clients with an open ticket are not available. None for the
                cohort of a round, which ``observe`` closes as a whole.
            available: bool[K], who can be asked now; None means everyone.
            cohort_size: m for this round only; None means the problem's.
            features: [K, d] context of each client, for policies that use it; [K, M, d], at each
                edge, where there are edges.
            edges: the edge servers: whom they cover, what clients cost, what each may spend; None
                in flat federated learning. Whom none covers is not available.
            truth: the true expectations; reaches oracle policies only.
            privacy_left: [K], the share of each client's privacy budget that a ledger has left.
            ask_loss: asks clients for the loss of the global model, for policies that do.
            forecast: asks clients when they expect to be available, for policies that do.
        """
        if self.pending is not None:
            raise CallOrderError(
                f"select: round {self.round} is still open: call observe() first (with no rows, "
                "if nobody answered)"
            )
        if count is None and len(self.tickets) > 0:
            raise CallOrderError(
                f"select: {len(self.tickets)} tickets are open, so no round can begin: write "
                "select(count=…), or call give_up(selector.tickets.numbers) first"
            )
        if count is not None:
            self._require_round_less(count, cohort_size)
        if self.round == 1 and cohort_size is None and count is None:
            warn_if_everyone(self.policy, self.problem)
        round_number, asked = self.round, self._asked
        if count is not None and asked >= self.problem.cohort_size:
            round_number, asked = round_number + 1, 0
        view = checked_view(
            self.policy,
            self.problem,
            round_number,
            available=available,
            busy=self.tickets.busy if len(self.tickets) > 0 else None,
            cohort_size=cohort_size if count is None else count,
            features=features,
            edges=edges,
            truth=truth,
            privacy_left=privacy_left,
            ask_loss=None if ask_loss is None else self._checked_ask(ask_loss, round_number),
            forecast=forecast,
        )
        # A round's further choices have streams of their own.
        key = (round_number,) if asked == 0 else (round_number, self.decisions)
        whole, view = view, self._restrained(view, key)
        selection = self.policy.select(self.state, view, stream(self.seed, POLICY, *key))
        fault = cohort_fault(self.policy, view, selection)
        if fault is not None:
            raise PolicyError(f"policy {self.policy.name}: {fault}")
        self.kept_back = None
        if view is not whole:
            self.kept_back = whole.available & ~view.available
            if whole.edges is not None:
                selection = self._with_leftovers(selection, whole, key)
        for column in (selection.clients, selection.edges):  # ours until they are observed
            if column is not None:
                column.setflags(write=False)
        if count is None:
            self.pending = selection
        else:
            selection = self.tickets.open(selection)
        self.liveness.asked(selection.clients)
        self.round, self._asked = round_number, asked + len(selection.clients)
        if count is not None and len(self.tickets) == 0 and whole.anybody_can_be_chosen():
            # The policy wants nobody, and no answer will end this round: the next choice does.
            self._asked = self.problem.cohort_size
        self.decisions += 1
        self._view, self._view_state, self._wanted = view, self.state, selection.wanted
        return selection

    def _restrained(self, view: RoundView, key: tuple[int, ...]) -> RoundView:
        """The view without clients that rest, and without newcomers beyond their quota.

        A policy that asks every available client passes nobody over, so it sees all of them.
        """
        if self.policy.cohort_rule == "everyone" or not self.liveness.restrains(view.round):
            return view
        places = view.num_to_choose if view.edges is None else 0
        choosable = self.liveness.choosable(
            view.available, round_=view.round, places=places, rng=stream(self.seed, LIVENESS, *key)
        )
        return replace(view, available=choosable)

    def _with_leftovers(
        self, selection: Selection, whole: RoundView, key: tuple[int, ...]
    ) -> Selection:
        """The placement, filled up with clients that were kept from the policy."""
        assert self.kept_back is not None
        rng = stream(self.seed, LIVENESS, *key)
        kept = np.flatnonzero(self.kept_back)
        turn = self.liveness.in_turn(kept, round_=whole.round, rng=rng)
        completed = with_leftovers(selection, whole, turn)
        self.kept_back[completed.clients] = False
        return completed

    def scores(self) -> dict[str, FloatArray]:
        """What the policy thinks of each client in the round that is open: [K] by name.

        Where exploration took places of clients, "wanted" is 1 for clients that the policy wanted
        and 0 for others.
        """
        if self._view is None or self._view_state is None:
            raise CallOrderError("scores: no round is open: call select() first, in this process")
        scores = dict(self.policy.scores(self._view_state, self._view))
        # Clients that joined since the round was opened are not in its view.
        now, then = self.problem.num_clients, len(self._view.available)
        if self._wanted is not None:
            scores["wanted"] = np.zeros(then)
            scores["wanted"][self._wanted] = 1.0
        for name, values in scores.items():
            if values.dtype != np.float64 or values.shape not in ((now,), (then,)):
                raise PolicyError(
                    f"policy {self.policy.name}: its score {name!r} is {values.dtype}"
                    f"{values.shape}, expected float64({now},)"
                )
            scores[name] = np.pad(values, (0, now - len(values)), constant_values=np.nan)
        return scores

    def observe(self, feedback: Feedback) -> FeedbackReport:
        """Learn from what came back: close the round, or the tickets that were answered.

        In rounds, clients of the cohort that ``feedback`` does not mention did not complete, and
        feedback for another round is refused with :class:`FeedbackError`; the round stays open.

        With ``feedback.tickets``, exactly these tickets are closed. Answers to tickets that are
        unknown, were given up or are closed already teach the policy nothing.

        ``feedback.late`` tells a policy that hears late answers what became of clients that did not
        complete in earlier rounds. It counts once for each such invitation. Other policies do not
        see it.

        Rows that cannot be right are dropped and counted, see :class:`FeedbackReport`; their
        clients did not complete, and those of late answers are still awaited.
        """
        if isinstance(feedback, Feedback) and feedback.tickets is not None:
            if feedback.late is not None and self.unanswered is not None:
                raise FeedbackError(
                    "feedback.late is for rounds: with tickets, answer the tickets themselves"
                )
            # Before all else: if it fails, nothing changes.
            message = read(feedback, self.wanted_sketch_size, self._wanted_classes)
            parts, refused = self.tickets.match(feedback.tickets, message.clients)
            return self._close_tickets(parts, refused, message)
        if self.pending is None:
            raise CallOrderError(
                f"observe: no cohort has been chosen for round {self.round}: call select() first"
                + (", or say which tickets were answered" if len(self.tickets) > 0 else "")
            )
        cleaned, report = clean(
            feedback,
            self.pending,
            sketch_size=self.wanted_sketch_size,
            num_classes=self._wanted_classes,
        )
        if self.unanswered is not None and feedback.late is not None:
            awaited = np.flatnonzero(self.unanswered)
            late, refused = clean_late(feedback.late, awaited, heard_in=self.round)
            cleaned = replace(cleaned, late=late)
            report = replace(
                report, refused={**report.refused, **refused}, accepted_late=len(late.clients)
            )
        cleaned, report = self._checked(cleaned, report)
        self.policy.observe(self.state, self.pending, cleaned)
        quota = self.pending.quota
        wanted = self.problem.cohort_size if quota is None else quota
        waited = int(np.count_nonzero(cleaned.answered)) < wanted
        self.liveness.heard(cleaned.clients, cleaned.answered, round_=self.round, waited=waited)
        if self.unanswered is not None:
            if cleaned.late is not None:
                self.liveness.answered(cleaned.late.clients[cleaned.late.answered])
                self.unanswered[cleaned.late.clients] -= 1
            self.unanswered[report.not_completed] += 1
        self.refused.update(report.refused)
        self.pending = self._view = None
        self.round, self._asked = self.round + 1, 0
        return report

    def give_up(self, tickets: ArrayLike) -> FeedbackReport:
        """Close open tickets without an answer, for example after a timeout.

        Their clients did not complete, and can be chosen again. An answer that comes later is
        recognised as late, counted and not learned from.
        """
        parts, refused = self.tickets.match(tickets, None)
        nobody = np.empty(0, dtype=np.int64)
        silence = read(Feedback(clients=nobody, latency_seconds=np.empty(0)), 0, 0)
        return self._close_tickets(parts, refused, silence, given_up=True)

    def _close_tickets(
        self,
        parts: Sequence[Part],
        refused: Mapping[str, int],
        message: Message,
        *,
        given_up: bool = False,
    ) -> FeedbackReport:
        """Teach the policy, close the tickets, begin a new round if none is open; one report."""
        accepted, total = 0, Counter(refused)
        nobody: IntArray = np.empty(0, dtype=np.int64)
        not_completed, distrusted = [nobody], [nobody]
        for selection, rows in parts:
            answers = message if given_up else message.part(rows)
            cleaned, report = clean_rows(answers, selection, heard_in=self.round)
            cleaned, report = self._checked(cleaned, report)
            self.policy.observe(self.state, selection, cleaned)
            self.liveness.heard(cleaned.clients, cleaned.answered, round_=self.round)
            self.tickets.close(selection, given_up=given_up)
            self._view = None
            accepted += report.accepted
            total.update(report.refused)
            not_completed.append(report.not_completed)
            distrusted.append(report.distrusted)
        whole = FeedbackReport(
            round=self.round,
            accepted=accepted,
            refused=dict(total),
            not_completed=np.sort(np.concatenate(not_completed)),
            distrusted=np.sort(np.concatenate(distrusted)),
        )
        self.refused.update(total)
        if parts and len(self.tickets) == 0:
            self.round, self._asked = self.round + 1, 0
        return whole

    def _checked(
        self, feedback: Feedback, report: FeedbackReport
    ) -> tuple[Feedback, FeedbackReport]:
        """What the policy may learn from a cleaned feedback, and what became of it."""
        check, late = self.report_check, feedback.late
        if check is None:
            return feedback, report
        if late is not None:
            late, _ = check.feedback(late, late.reported_seconds)
        checked, distrusted = check.feedback(feedback, feedback.reported_seconds)
        checked = replace(checked, late=late)
        if self.policy.wanted_sketch_size == 0:
            checked = replace(checked, sketches=None)
        return checked, replace(report, distrusted=distrusted)

    def _checked_ask(self, ask: AskLoss, round_number: int) -> AskLoss:
        """Asks for losses, and checks what clients answer."""
        check = self.report_check
        if check is None:
            return ask

        def ask_and_check(clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
            losses = ask(clients, batch_size=batch_size)
            return check.asked_loss(clients, losses, round_=round_number)

        return ask_and_check

    def _require_round_less(self, count: object, cohort_size: int | None) -> None:
        if not is_count(count, least=1) or cohort_size is not None:
            raise DataError(
                f"select: count is {shortened(count)} and cohort_size {shortened(cohort_size)}, "
                f"expected count, an integer from 1 to {LARGEST_COUNT:,}, without a cohort_size"
            )
        if self.policy.rounds_only is not None:
            raise PolicyError(
                f"policy {self.policy.name} works in rounds only: {self.policy.rounds_only}; call "
                "select() without count, or choose another policy"
            )

    @property
    def wanted_sketch_size(self) -> int:
        """How long ``Feedback.sketches`` should be: as the policy wants, or the check of reports;
        0 for none."""
        size = self.policy.wanted_sketch_size
        return SKETCH_SIZE if size == 0 and self.report_check is not None else size

    @property
    def _wanted_classes(self) -> int:
        """How many biases of the output layer the policy wants."""
        return self.problem.num_classes if self.policy.wants_output_bias else 0

    @property
    def _decided_in_rounds(self) -> int:
        """How often clients were chosen, if it was once in each round."""
        return self.round if self.pending is not None else self.round - 1

    def join(
        self,
        count: int,
        *,
        num_samples: IntArray | None = None,
        quality: ArrayLike | None = None,
        clusters: IntArray | None = None,
        attributes: ArrayLike | None = None,
        expected_seconds: ArrayLike | None = None,
    ) -> IntArray:
        """Let ``count`` new clients join, also while a round is open; returns their indices."""
        if not is_count(count, least=1):
            raise DataError(
                f"join: count is {shortened(count)}, expected an integer from 1 to "
                f"{LARGEST_COUNT:,}"
            )
        first = self.problem.num_clients
        problem = self.problem.grown(
            int(count),
            first_round=self.round if self.pending is None else self.round + 1,
            joining={
                "num_samples": num_samples,
                "quality": quality,
                "clusters": clusters,
                "attributes": attributes,
                "expected_seconds": expected_seconds,
            },
        )
        self.state = states.grow(self.state, self.policy.init(problem))
        self.problem = problem
        self.tickets.grow(problem.num_clients)
        self.liveness.join(int(count), newcomers=self.decisions > 0)
        if self.unanswered is not None:
            self.unanswered = np.pad(self.unanswered, (0, int(count)))
        return np.arange(first, problem.num_clients)

    def save(self, path: str | Path) -> None:
        """Write everything to one ``.npz`` file; a crash leaves the old file or the new one."""
        try:
            write_file(Path(path), self.to_bytes())
        except OSError as error:
            raise StateError(f"cannot write {path}: {error.strerror}") from error

    @classmethod
    def restore(cls, path: str | Path, policy: Policy[S] | str) -> "Selector[S]":
        """Continue from :meth:`save`, with the same policy and hyper-parameters."""
        try:
            image = Path(path).read_bytes()
        except OSError as error:
            raise StateError(f"cannot read {path}: {error.strerror}") from error
        return cls.from_bytes(image, policy, source=str(path))

    def to_bytes(self) -> bytes:
        """The image that :meth:`save` writes."""
        arrays = {f"state.{name}": a for name, a in states.learned_arrays(self.state).items()}
        for prefix, owner, names in (
            ("problem", self.problem, PER_CLIENT),
            ("pending", self.pending, _PENDING),
        ):
            columns = {f"{prefix}.{name}": getattr(owner, name, None) for name in names}
            arrays |= {name: values for name, values in columns.items() if values is not None}
        if self.unanswered is not None:
            arrays["unanswered"] = self.unanswered
        arrays |= {f"liveness.{name}": a for name, a in self.liveness.arrays().items()}
        if self.report_check is not None:
            arrays |= {f"reports.{name}": a for name, a in self.report_check.arrays().items()}
        meta: dict[str, Any] = {
            "format": _FORMAT,
            "policy": {**to_table(self.policy), "name": self.policy.name},
            "problem": {
                name: getattr(self.problem, name)
                for name in COUNTS
                if name != "num_classes" or self.problem.num_classes > 0
            },
            "seed": self.seed,
            "round": self.round,
            "refused": dict(self.refused),
            "quota": None if self.pending is None else self.pending.quota,
        }
        if self.liveness.unusual_settings:
            meta["liveness"] = self.liveness.unusual_settings
        if self.pending is not None and self.pending.deadline_seconds is not None:
            meta["deadline_seconds"] = self.pending.deadline_seconds
        if self.tickets.next > 0 or self.decisions != self._decided_in_rounds:
            arrays |= {f"tickets.{name}": a for name, a in self.tickets.arrays().items()}
            meta |= {"asked": self._asked, "decisions": self.decisions}
        return states.to_bytes(arrays, meta)

    @classmethod
    def from_bytes(cls, image: bytes, policy: Policy[S] | str, *, source: str) -> "Selector[S]":
        """The selector whose image :meth:`to_bytes` made."""
        policy = as_policy(policy, owner="Selector")
        arrays, meta = states.from_bytes(image, source=source, uncopied="state.")
        with states.damaged_values(source):
            return cls._of_arrays(arrays, meta, policy, source=source)

    @classmethod
    def _of_arrays(
        cls,
        arrays: Mapping[str, states.Array],
        meta: Mapping[str, Any],
        policy: Policy[S],
        *,
        source: str,
    ) -> "Selector[S]":
        if meta.get("format") not in _READABLE:
            raise StateError(
                f"{source} is no selector of this version (format {meta.get('format')!r}, expected "
                f"{_FORMAT}): restore it with the version that saved it"
            )
        _check_same_policy(meta["policy"], policy, source)
        described: dict[str, Any] = dict(meta["problem"])
        described.update((name, arrays.get(f"problem.{name}")) for name in PER_CLIENT)
        problem = Problem(**described)
        selector = cls(policy, problem, seed=meta["seed"], **meta.get("liveness", {}))
        states.load_arrays(selector.state, states.with_prefix("state.", arrays))
        selector.round = meta["round"]
        selector.refused.update(meta["refused"])
        if "pending.clients" in arrays:
            pending: dict[str, Any] = {name: arrays.get(f"pending.{name}") for name in _PENDING}
            pending |= {"quota": meta["quota"], "deadline_seconds": meta.get("deadline_seconds")}
            selector.pending = Selection(round=selector.round, **pending)
        if selector.unanswered is not None:  # a file of before the policy heard late answers: none
            selector.unanswered = arrays.get("unanswered", selector.unanswered)
        selector.liveness.load(states.with_prefix("liveness.", arrays))
        if "reports.clock" in arrays:
            selector.report_check = ReportCheck.of_arrays(states.with_prefix("reports.", arrays))
        selector.tickets.load(states.with_prefix("tickets.", arrays))
        selector.decisions = meta.get("decisions", selector._decided_in_rounds)
        selector._asked = meta.get("asked", 0)
        return selector


def _check_same_policy(saved: dict[str, Any], policy: Policy[Any], source: str) -> None:
    """Refuse another policy; hyper-parameters that a newer version added count as defaults."""
    same = saved == {**to_table(policy), "name": policy.name}
    if not same:  # of a part that only Python knows there is no reading back
        settings = {key: value for key, value in saved.items() if key != "name"}
        with suppress(ConfigError):
            same = saved["name"] == policy.name and from_table(type(policy), settings) == policy
    if not same:
        raise StateError(
            f"{source} was saved with the policy {saved}, not {to_table(policy)}: restore it with "
            "the same policy and hyper-parameters"
        )
