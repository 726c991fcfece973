"""The contract itself: honest outsiders pass, each broken policy fails the point meant for it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster.core.errors import PolicyError
from fedmuster.core.policy import CohortRule, Policy, PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.state import given, shared
from fedmuster.testing import (
    CHECKS,
    Check,
    ContractError,
    Knowledge,
    assert_cohort_is_optimal,
    check_policy,
    replay,
    ticket_checks,
)
from fedmuster.testing.playing import feedback_rows

pytestmark = pytest.mark.slow

BONUS = 0.2


@dataclass
class State:
    """What the honest policy learns, and room for the sins of the others."""

    count: IntArray
    seconds: FloatArray
    note: IntArray = shared()
    cohort_size: IntArray = given()


class Optimist(PolicyTraits):
    """Shortest mean latency less a bonus for the rarely asked; the unseen first; ties at random."""

    failure_seconds: ClassVar[float] = 10.0

    def init(self, problem: Problem) -> State:
        return State(
            count=np.zeros(problem.num_clients, dtype=np.int64),
            seconds=np.zeros(problem.num_clients),
            note=np.zeros(problem.cohort_size, dtype=np.int64),
            cohort_size=np.array(problem.cohort_size),
        )

    def score(self, state: State, view: RoundView) -> FloatArray:
        seen = np.maximum(state.count, 1)
        bonus = BONUS * np.sqrt(np.log(view.round + 1) / seen)
        return np.where(state.count == 0, np.inf, bonus - state.seconds / seen)

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        return rng.random(len(view.available))

    def number(self, state: State, view: RoundView) -> int:
        del state
        return view.num_to_choose

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        rows = np.flatnonzero(view.available)
        score, noise = self.score(state, view)[rows], self.tie_break(view, rng)[rows]
        best = np.lexsort((noise, -score))[: self.number(state, view)]
        return Selection.of(view, rows, best)

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        del selection
        state.count[feedback.clients] += 1
        answered = feedback.answered
        seconds = np.where(answered, feedback.latency_seconds, self.failure_seconds)
        state.seconds[feedback.clients] += seconds


class LossSeeker(Optimist):
    """Highest last loss; the unseen first."""

    failure_loss: ClassVar[float] = 0.0

    def init(self, problem: Problem) -> State:
        return replace(Optimist.init(self, problem), seconds=np.full(problem.num_clients, np.inf))

    def score(self, state: State, view: RoundView) -> FloatArray:
        del view
        return state.seconds

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        del selection
        unknown = np.full(len(feedback.clients), self.failure_loss)
        loss = feedback.signals.get("loss", unknown)  # nobody sends signals of what was given up
        state.seconds[feedback.clients] = np.where(feedback.answered, loss, unknown)


config = dataclass(frozen=True, kw_only=True)
ROUNDLESS = next(check for check in CHECKS if check.point == 17)


# --- Policies that keep the contract -----------------------------------------------------------


@config
class Honest(Optimist):
    name: ClassVar[str] = "honest"


@config
class Frugal(Optimist):
    """A budgeted policy: at most m, here one fewer where it can."""

    name: ClassVar[str] = "frugal"
    cohort_rule: ClassVar[CohortRule] = "at most"

    def number(self, state: State, view: RoundView) -> int:
        del state
        return max(view.num_to_choose - 1, min(view.num_to_choose, 1))


@config
class Unbounded(Optimist):
    """Everyone, whatever it observes."""

    name: ClassVar[str] = "unbounded"
    cohort_rule: ClassVar[CohortRule] = "everyone"
    learns: ClassVar[bool] = False
    rounds_only: ClassVar[str | None] = "it asks everybody at once"

    def number(self, state: State, view: RoundView) -> int:
        del state
        return view.num_available


@config
class Told(Optimist):
    """An oracle."""

    name: ClassVar[str] = "told"
    oracle: ClassVar[bool] = True
    learns: ClassVar[bool] = False

    def score(self, state: State, view: RoundView) -> FloatArray:
        del state
        assert view.truth is not None
        return -view.truth.mean_latency_seconds


@config
class Needy(LossSeeker):
    """Cares for the clients that the model serves badly, not for time."""

    name: ClassVar[str] = "needy"


@config
class HearsLate(Optimist):
    """Learns from late answers, too; what is given up it has counted as failed in its round."""

    name: ClassVar[str] = "hears-late"
    hears_late: ClassVar[bool] = True

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        if feedback.late is not None:
            self.hear(state, feedback_rows(feedback.late, np.flatnonzero(feedback.late.answered)))

    def hear(self, state: State, late: Feedback) -> None:
        state.seconds[late.clients] += late.latency_seconds - self.failure_seconds


# --- Policies that break one point, and those that ask for the same -----------------------------


@dataclass(kw_only=True)
class Mutable(Optimist):
    name: ClassVar[str] = "mutable"
    bonus: float = 0.2


@dataclass(frozen=True, kw_only=True)
class NeedsArgument(Optimist):
    name: ClassVar[str] = "needs-argument"
    bonus: float


@dataclass(frozen=True)
class Positional(Optimist):
    name: ClassVar[str] = "positional"
    bonus: float = 0.2


@config
class Forgetful(Optimist):
    """Its repr, by which a saved state knows its policy, is not all of it."""

    name: ClassVar[str] = "forgetful"
    bonus: float = field(default=0.2, compare=False)
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", self.scale / 2)


@config
class IgnoresViewsCohortSize(Optimist):
    name: ClassVar[str] = "ignores-views-cohort-size"

    def number(self, state: State, view: RoundView) -> int:
        return min(int(state.cohort_size), view.num_available)


@config
class CountsCalls(Optimist):
    name: ClassVar[str] = "counts-calls"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        state.note[0] += 1
        return Optimist.select(self, state, view, rng)


@config
class KeepsReference(Optimist):
    name: ClassVar[str] = "keeps-reference"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        if len(selection.clients) == len(state.note):
            state.note = selection.clients


@config
class GivesNoReason(Optimist):
    """Says that it needs rounds, and not why."""

    name: ClassVar[str] = "gives-no-reason"
    rounds_only: ClassVar[str | None] = ""


@config
class HashSeeded(Optimist):
    name: ClassVar[str] = "hash-seeded"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        seed = [abs(hash(self.name)), int(rng.integers(2**32))]
        return np.random.default_rng(seed).random(len(view.available))


@config
class SeedsGlobalRandom(Optimist):
    name: ClassVar[str] = "seeds-global-random"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        random.seed(int(rng.integers(2**32)))
        return np.array([random.random() for _ in view.available])


@config
class Grows(Optimist):
    """Keeps a list of rounds whose capacity doubles when it is full."""

    name: ClassVar[str] = "grows"

    def init(self, problem: Problem) -> State:
        return replace(Optimist.init(self, problem), note=np.zeros(64, dtype=np.int64))

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        if selection.round > len(state.note):
            state.note = np.append(state.note, np.zeros_like(state.note))
        state.note[selection.round - 1] = len(feedback.clients)


@config
class HidesMemory(Optimist):
    """Lets the last cohort rest, but does not say so in a field of the state."""

    name: ClassVar[str] = "hides-memory"

    def score(self, state: State, view: RoundView) -> FloatArray:
        score = Optimist.score(self, state, view)
        score[vars(state).get("resting", [])] -= 1.0
        return score

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        vars(state)["resting"] = selection.clients.tolist()


@config
class FavoursLowIds(Optimist):
    name: ClassVar[str] = "favours-low-ids"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        del rng
        return np.arange(float(len(view.available)))


@config
class RemembersLastRow(Optimist):
    name: ClassVar[str] = "remembers-last-row"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        state.note[0] = feedback.clients[-1] if len(feedback.clients) else 0


@config
class NeedsSomebody(Optimist):
    name: ClassVar[str] = "needs-somebody"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        score = self.score(state, view)
        assert score[view.available].max() >= -np.inf  # the maximum of nothing is an error
        return Optimist.select(self, state, view, rng)


@config
class SumsFailures(Optimist):
    name: ClassVar[str] = "sums-failures"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        del selection
        state.count[feedback.clients] += 1
        state.seconds[feedback.clients] += feedback.latency_seconds


@config
class KeepsTheSilent(Optimist):
    """Counts answers alone, so that a client that never answers stays unseen and comes first."""

    name: ClassVar[str] = "keeps-the-silent"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        del selection
        answered = feedback.clients[feedback.answered]
        state.count[answered] += 1
        state.seconds[answered] += feedback.latency_seconds[feedback.answered]


@config
class WaitsForAll(Optimist):
    """Learns only from feedback of more than one client."""

    name: ClassVar[str] = "waits-for-all"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        if len(feedback.clients) > 1:
            Optimist.observe(self, state, selection, feedback)


@config
class AsksEverybody(Unbounded):
    """Does not say that it cannot choose as many as there are free slots."""

    name: ClassVar[str] = "asks-everybody"
    rounds_only: ClassVar[str | None] = None


@config
class IgnoresOldTickets(Optimist):
    """Remembers its last selection only: answers to earlier ones teach it nothing."""

    name: ClassVar[str] = "ignores-old-tickets"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        if selection.round >= state.note[0]:
            state.note[0] = selection.round
            Optimist.observe(self, state, selection, feedback)


@config
class KnowsOneCohort(Optimist):
    """Keeps the clients of its last selection in its state, and ignores the answers of others."""

    name: ClassVar[str] = "knows-one-cohort"

    def init(self, problem: Problem) -> State:
        memory = np.zeros(problem.num_clients, dtype=np.int64)
        return replace(Optimist.init(self, problem), note=memory, seconds=np.zeros(len(memory)))

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        if len(state.note) < len(state.count):  # clients have joined
            state.note = np.append(state.note, np.zeros(len(state.count) - len(state.note), int))
        if selection.round > state.note.max():
            state.note[:] = 0
        if selection.round >= state.note.max():
            state.note[selection.clients] = selection.round
        known = state.note[feedback.clients] > 0
        if known.all():
            Optimist.observe(self, state, selection, feedback)


@config
class WantsItsOwnRound(Optimist):
    """Takes it that answers come in the round in which clients were asked."""

    name: ClassVar[str] = "wants-its-own-round"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        assert feedback.round == selection.round
        Optimist.observe(self, state, selection, feedback)


@config
class RemembersLastAnswer(Optimist):
    """Remembers the last row of a message, but only without rounds."""

    name: ClassVar[str] = "remembers-last-answer"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        if selection.tickets is not None and len(feedback.clients):
            state.note[0] = feedback.clients[-1]


@config
class ForgetsOpenTickets(Optimist):
    """Keeps what it heard without rounds in no field of its state."""

    name: ClassVar[str] = "forgets-open-tickets"

    def score(self, state: State, view: RoundView) -> FloatArray:
        return np.asarray(Optimist.score(self, state, view) - vars(state).get("malus", 0.0))

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        if selection.tickets is not None:
            malus = np.zeros(len(state.count))
            malus[feedback.clients] = 5.0
            vars(state)["malus"] = malus


@config
class RunsForward(Optimist):
    """Forgets by the rounds between two selections, as if none were older than the last."""

    name: ClassVar[str] = "runs-forward"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        with np.errstate(invalid="ignore"):
            state.seconds *= 0.999 ** np.sqrt(float(selection.round - state.note[0]))
        state.note[0] = selection.round
        Optimist.observe(self, state, selection, feedback)


@config
class DividesByRounds(Optimist):
    """Divides by the rounds since a client last answered, as if it answered once a round."""

    name: ClassVar[str] = "divides-by-rounds"

    def init(self, problem: Problem) -> State:
        both = np.zeros((problem.num_clients, 2))
        return replace(Optimist.init(self, problem), seconds=both)

    def score(self, state: State, view: RoundView) -> FloatArray:
        return Optimist.score(self, replace(state, seconds=state.seconds[:, 0]), view)

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        clients, last_round = feedback.clients, state.seconds[feedback.clients, 1]
        with np.errstate(invalid="ignore"):
            pace = (selection.round - last_round) / (feedback.round - last_round)
        seconds = np.where(feedback.answered, feedback.latency_seconds, self.failure_seconds)
        state.count[clients] += 1
        state.seconds[clients, 0] += pace * seconds
        state.seconds[clients, 1] = feedback.round


@config
class CountsGivenUpAsAnswers(LossSeeker):
    """Takes a client that sends no loss for one that has answered, and must be asked again."""

    name: ClassVar[str] = "counts-given-up-as-answers"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        if "loss" in feedback.signals:
            LossSeeker.observe(self, state, selection, feedback)
        else:
            state.count[feedback.clients] += 1


@config
class NeedsSignals(LossSeeker):
    """Takes it that there are signals of every client, also of one that was given up."""

    name: ClassVar[str] = "needs-signals"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        assert len(feedback.signals["loss"]) == len(feedback.clients)
        LossSeeker.observe(self, state, selection, feedback)


@config
class LosesHeart(Optimist):
    """Asks nobody any more when most of many jobs have failed."""

    name: ClassVar[str] = "loses-heart"
    cohort_rule: ClassVar[CohortRule] = "at most"

    def number(self, state: State, view: RoundView) -> int:
        jobs, failed = state.count.sum(), state.seconds.sum() / self.failure_seconds
        return 0 if jobs >= 20 and failed > 0.6 * jobs else view.num_to_choose


@config
class NeedsRows(Optimist):
    name: ClassVar[str] = "needs-rows"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        if len(selection.clients):
            state.note[0] = feedback.clients.max()


@config
class ExploresEarlyOnly(Optimist):
    name: ClassVar[str] = "explores-early-only"

    def score(self, state: State, view: RoundView) -> FloatArray:
        score = Optimist.score(self, state, view)
        return score if view.round <= 20 else np.where(state.count == 0, -np.inf, score)


@config
class LearnsNothing(Optimist):
    name: ClassVar[str] = "learns-nothing"

    def score(self, state: State, view: RoundView) -> FloatArray:
        del state
        return np.zeros(len(view.available))


@config
class LovesTheSlow(Optimist):
    """Among those that answer: a client that fails counts as one that took no time."""

    name: ClassVar[str] = "loves-the-slow"
    failure_seconds: ClassVar[float] = 0.0

    def score(self, state: State, view: RoundView) -> FloatArray:
        seen = np.maximum(state.count, 1)
        return np.where(state.count == 0, np.inf, state.seconds / seen)


@config
class LovesTheServed(LossSeeker):
    """Among those that answer: a client that fails counts as one with a high loss."""

    name: ClassVar[str] = "loves-the-served"
    failure_loss: ClassVar[float] = 100.0

    def score(self, state: State, view: RoundView) -> FloatArray:
        del view
        return np.where(np.isinf(state.seconds), np.inf, -state.seconds)


@config
class RemembersLastLate(HearsLate):
    name: ClassVar[str] = "remembers-last-late"

    def hear(self, state: State, late: Feedback) -> None:
        HearsLate.hear(self, state, late)
        state.note[0] = late.clients[-1] if len(late.clients) else 0


@config
class KeepsLateAnswers(HearsLate):
    name: ClassVar[str] = "keeps-late-answers"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        HearsLate.observe(self, state, selection, feedback)
        if feedback.late is not None and len(feedback.late.clients) == 1:
            state.note = feedback.late.clients  # one client: in the same order backwards


@config
class SumsLateFailures(HearsLate):
    """Takes it that every row of late answers has a loss."""

    name: ClassVar[str] = "sums-late-failures"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        HearsLate.observe(self, state, selection, feedback)
        if feedback.late is not None:
            state.seconds[feedback.late.clients] += feedback.late.signals["loss"]


@config
class DeniesLearning(Optimist):
    name: ClassVar[str] = "denies-learning"
    learns: ClassVar[bool] = False


@config
class DeafOracle(Optimist):
    """Is told the truth and draws at random."""

    name: ClassVar[str] = "deaf-oracle"
    oracle: ClassVar[bool] = True
    learns: ClassVar[bool] = False

    def score(self, state: State, view: RoundView) -> FloatArray:
        del state
        return np.zeros(len(view.available))


# --- Policies that break a point, and with it later ones ----------------------------------------


@config
class Unsorted(Optimist):
    name: ClassVar[str] = "unsorted"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Optimist.select(self, state, view, rng)
        return replace(chosen, clients=chosen.clients[::-1].copy(), features=None)


@config
class Twice(Optimist):
    name: ClassVar[str] = "twice"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Optimist.select(self, state, view, rng)
        return replace(chosen, clients=np.repeat(chosen.clients[:1], len(chosen.clients)))


@config
class ChoosesTheAbsent(Optimist):
    name: ClassVar[str] = "chooses-the-absent"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        everyone = replace(view, available=np.ones_like(view.available))
        return Optimist.select(self, state, everyone, rng)


@config
class NarrowIds(Optimist):
    name: ClassVar[str] = "narrow-ids"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Optimist.select(self, state, view, rng)
        narrow: Any = chosen.clients.astype(np.int32)
        return replace(chosen, clients=narrow)


@config
class WrongRound(Optimist):
    name: ClassVar[str] = "wrong-round"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        return replace(Optimist.select(self, state, view, rng), round=view.round - 1)


@config
class ImpossibleInclusion(Optimist):
    name: ClassVar[str] = "impossible-inclusion"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Optimist.select(self, state, view, rng)
        return replace(chosen, inclusion=np.full(len(chosen.clients), 1.5))


@config
class FewerThanExact(Frugal):
    name: ClassVar[str] = "fewer-than-exact"
    cohort_rule: ClassVar[CohortRule] = "exact"


@config
class WritesIntoView(Optimist):
    name: ClassVar[str] = "writes-into-view"

    def select(self, state: State, view: RoundView, rng: Generator) -> Selection:
        chosen = Optimist.select(self, state, view, rng)
        view.available[:] = True
        return chosen


@config
class OwnGenerator(Optimist):
    name: ClassVar[str] = "own-generator"

    def tie_break(self, view: RoundView, rng: Generator) -> FloatArray:
        del rng
        return np.random.default_rng().random(len(view.available))


@config
class ChangesType(Optimist):
    name: ClassVar[str] = "changes-type"

    def observe(self, state: State, selection: Selection, feedback: Feedback) -> None:
        Optimist.observe(self, state, selection, feedback)
        wider: Any = state.note.astype(np.float64)
        state.note = wider


KEEPING: Sequence[Policy[Any]] = (Honest(), Frugal(), Unbounded(), Told(), Needy(), HearsLate())

BREAKING: Sequence[tuple[set[int], Policy[Any]]] = (
    ({1}, Mutable()),
    ({1}, NeedsArgument(bonus=0.2)),
    ({1}, Positional()),
    ({1}, GivesNoReason()),
    ({2, 17, 19}, IgnoresViewsCohortSize()),
    ({3}, CountsCalls()),
    ({4}, KeepsReference()),
    ({5}, HashSeeded()),
    ({6}, SeedsGlobalRandom()),
    ({7}, Grows()),
    ({8, 17}, HidesMemory()),
    ({9}, FavoursLowIds()),
    ({10, 17}, RemembersLastRow()),
    ({11}, NeedsSomebody()),
    ({12}, SumsFailures()),
    ({12}, NeedsRows()),
    ({13}, ExploresEarlyOnly()),
    ({14, 17}, LearnsNothing()),
    ({14, 17}, LovesTheSlow()),
    ({14, 17}, LovesTheServed()),
    ({14}, DeniesLearning()),
    ({14, 17}, DeafOracle()),
    ({16, 17}, KeepsTheSilent()),
    ({17}, WaitsForAll()),
    ({17}, AsksEverybody()),
    ({17}, IgnoresOldTickets()),
    ({17}, KnowsOneCohort()),
    ({17, 19}, WantsItsOwnRound()),
    ({17}, RemembersLastAnswer()),
    ({17}, ForgetsOpenTickets()),
    ({17}, RunsForward()),
    ({12, 17}, DividesByRounds()),
    ({17}, CountsGivenUpAsAnswers()),
    ({17, 19}, NeedsSignals()),
    ({19}, LosesHeart()),
    ({18}, RemembersLastLate()),
    ({18}, KeepsLateAnswers()),
    ({18}, SumsLateFailures()),
)

BREAKING_FIRST: Sequence[tuple[int, Policy[Any]]] = (
    (1, Forgetful()),
    (2, Unsorted()),
    (2, Twice()),
    (2, ChoosesTheAbsent()),
    (2, NarrowIds()),
    (2, WrongRound()),
    (2, ImpossibleInclusion()),
    (2, FewerThanExact()),
    (3, WritesIntoView()),
    (3, OwnGenerator()),
    (7, ChangesType()),
)


def label(value: Any) -> str:
    if isinstance(value, set):
        return " and ".join(map(str, sorted(value)))
    return str(getattr(value, "name", value))


@pytest.mark.parametrize("policy", KEEPING, ids=label)
def test_an_honest_outsider_keeps_every_point(policy: Policy[Any]) -> None:
    check_policy(policy)


def breach(check: Check, policy: Policy[Any]) -> ContractError | None:
    try:
        check(policy)
    except ContractError as violation:
        return violation
    return None


@pytest.mark.parametrize(("points", "policy"), BREAKING, ids=label)
def test_a_broken_policy_fails_the_points_meant_for_it_and_no_others(
    points: set[int], policy: Policy[Any]
) -> None:
    violations = [violation for check in CHECKS if (violation := breach(check, policy))]
    assert [violation.point for violation in violations] == sorted(points), violations


@pytest.mark.parametrize("policy", [ChoosesTheAbsent(), IgnoresViewsCohortSize()], ids=label)
def test_a_policy_that_asks_busy_clients_or_too_many_does_not_run_without_rounds(
    policy: Policy[Any],
) -> None:
    violation = breach(ROUNDLESS, policy)
    assert violation is not None
    assert violation.point == 17
    assert isinstance(violation.__cause__, PolicyError)


def test_a_client_that_answers_twice_in_a_round_is_caught_without_luck() -> None:
    assert ticket_checks.encore_fault(DividesByRounds(), Knowledge()) is not None
    assert ticket_checks.encore_fault(Honest(), Knowledge()) is None


def test_a_policy_that_needs_rounds_must_be_refused_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs_rounds = Unbounded()
    assert breach(ROUNDLESS, needs_rounds) is None
    monkeypatch.setattr(Selector, "_require_round_less", lambda *_: None)
    violation = breach(ROUNDLESS, needs_rounds)
    assert violation is not None
    assert violation.point == 17


@pytest.mark.parametrize(("point", "policy"), BREAKING_FIRST, ids=label)
def test_check_policy_names_the_first_point_that_is_broken(point: int, policy: Policy[Any]) -> None:
    with pytest.raises(ContractError) as caught:
        check_policy(policy)
    assert caught.value.point == point


def test_points_are_those_of_the_contract_in_order() -> None:
    assert [check.point for check in CHECKS] == [*range(1, 15), 16, 17, 18, 19]
    assert set().union(*(points for points, _ in BREAKING)) == {check.point for check in CHECKS}


def test_a_class_that_no_process_can_import_is_told_how_to_be_importable() -> None:
    @config
    class Local(Optimist):
        name: ClassVar[str] = "local"

    trajectory = CHECKS[4]
    with pytest.raises(ContractError) as caught:
        trajectory(Local())
    assert caught.value.point == 5


def test_a_violation_says_who_did_what() -> None:
    with pytest.raises(ContractError, match=r"point 9: FavoursLowIds .*tie.*rng") as caught:
        check_policy(FavoursLowIds())
    assert caught.value.point == 9


def test_golden_check_catches_a_cohort_that_is_not_optimal() -> None:
    problem = Problem(num_clients=4, cohort_size=2)
    policy = Honest()
    round_one = Selection(round=1, clients=np.arange(4))
    seconds = np.array([0.4, 0.1, 0.3, 0.2])
    feedback = Feedback(round=1, clients=round_one.clients, latency_seconds=seconds)
    state = replay(policy, problem, [(round_one, feedback)])
    view = RoundView(round=2, cohort_size=2, available=np.array([True, False, True, True]))
    assert_cohort_is_optimal(policy, state, view, lambda s: -float(seconds[list(s)].sum()))
    with pytest.raises(ContractError, match=r"chose \[2, 3\].*\[0, 2\] is worth 0.7") as caught:
        assert_cohort_is_optimal(policy, state, view, lambda s: float(seconds[list(s)].sum()))
    assert caught.value.point == 15
