"""How a federation works: when clients are asked, when the server aggregates, what is stale.

``[federation]`` of an experiment::

    concurrency = 20                                   # C: jobs that may be open at once
    refill = 1                                         # O: slots that must be free to ask anybody
    buffer = 5                                         # B: answers that the server aggregates
    staleness = { name = "polynomial", power = 0.5 }   # what old answers are worth
    rest_after = 5                                     # unanswered jobs in a row before a rest

Rounds are the case C = O = B: everybody is asked at once, and the server waits for them together.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, cast

from fedmuster.core.config import check_types, from_table, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.liveness import LARGEST_REST_AFTER, REST_AFTER
from fedmuster.core.policy import Policy
from fedmuster.core.records import Problem
from fedmuster.core.staleness import CachedModels, PolynomialWorth, Staleness
from fedmuster.federation.triggers import Buffer, Trigger
from fedmuster.worlds.world import World


@dataclass(frozen=True, kw_only=True, slots=True)
class Federation:
    """When clients are asked (slots), when the server aggregates (trigger), what old answers are
    worth (staleness).

    Args:
        concurrency: C, the jobs that may be open at once, at each edge server where there are
            some (in rounds, at all edge servers on average); None for the world's cohort size.
        refill: O, the slots that must be free before clients are asked; None for 1, or in rounds
            for all of them.
        buffer: B, the answers that the server waits for; short for a trigger ``buffer``.
        trigger: when the server aggregates; None with ``buffer``, and in rounds.
        staleness: what answers are worth that were trained on an older model; None for
            ``(1 + age)^-0.5``, and in rounds for what the policy says.
        rounds: whether one policy works in rounds where the others do not.
        late_hold_slots: in rounds, whether a client that misses the end of its round holds its slot
            until its late answer arrives, or until its deadline if it never answers. A round then
            asks C less the slots that are held, but at least one client; it asks nobody while more
            than C slots are held. None for what the policy says.
        check_reports: whether what clients report is checked before the policy hears it, see
            :class:`~fedmuster.core.trust.report_check.ReportCheck`.
    """

    concurrency: int | None = None
    refill: int | None = None
    buffer: int | None = None
    trigger: Trigger | None = None
    staleness: Staleness | None = None
    rounds: bool = False
    late_hold_slots: bool | None = None
    rest_after: int | None = None
    check_reports: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("concurrency", "refill", "buffer"):
            value = getattr(self, name)
            require(value is None or value >= 1, self, name, "an integer >= 1")
        fits = self.rest_after is None or 0 <= self.rest_after <= LARGEST_REST_AFTER
        require(fits, self, "rest_after", f"an integer from 0 (never) to {LARGEST_REST_AFTER:,}")
        if self.buffer is not None and self.trigger is not None:
            raise ConfigError("Federation: give buffer or trigger, not both", key=("buffer",))
        if self.rounds and (self.refill, self.buffer, self.trigger) != (None, None, None):
            raise ConfigError(
                "Federation: rounds = true is without refill, buffer and trigger", key=("rounds",)
            )

    def overridden_by(self, other: "Federation") -> "Federation":
        """These settings, replaced by those that ``other`` sets."""
        values = {item.name: (getattr(other, item.name), item.default) for item in fields(self)}
        told = {name: value for name, (value, unset) in values.items() if value != unset}
        if told.keys() & {"buffer", "trigger"}:
            told = {"buffer": None, "trigger": None} | told
        return replace(self, **told)

    def _with_published(self, policy: Policy[Any], slots: int) -> "Federation":
        """These settings; those that are not set are as the policy was published.

        A published refill or buffer is at most as large as the number of slots.
        """
        if self.rounds:
            return self
        published = from_table(Federation, policy.published_federation)
        sizes = {name: getattr(published, name) for name in ("refill", "buffer")}
        fits = {name: min(size, slots) for name, size in sizes.items() if size is not None}
        return replace(published, **fits).overridden_by(self)

    def resized(self, world: World) -> World:
        """The world with as many clients in a cohort as there are slots.

        In rounds, M edge servers together ask at most M times ``concurrency`` clients.
        """
        config: Any = world
        size, largest = getattr(world, "cohort_size", None), self.concurrency
        if size is None or largest is None:
            return world
        if world.hierarchical:
            most = size or config.num_clients
            largest = min(most, largest * config.num_edges) if self._has_rounds(largest) else most
            size = most
        return world if size == largest else cast(World, replace(config, cohort_size=largest))

    def _has_rounds(self, slots: int) -> bool:
        """Whether these settings are rounds, with this number of slots."""
        if self.trigger is not None or (self.buffer or slots) != slots:
            return False
        if self.refill is None:  # a buffer of C answers alone: slots are refilled one by one
            return self.buffer is None or slots == 1
        return self.refill == slots

    def settled(self, policy: Policy[Any], problem: Problem) -> "Federation":
        """With every setting filled in; complains about settings that cannot work.

        What is not set is as the policy was published.
        """
        num_clients, cohort_size = problem.num_clients, problem.cohort_size
        slots = cohort_size if self.concurrency is None else self.concurrency
        if self.concurrency is not None and slots > num_clients:
            raise ConfigError(
                f"Federation: concurrency = {slots}, but there are {num_clients} clients: write at "
                f"most {num_clients}",
                key=("federation", "concurrency"),
            )
        for name in ("refill", "buffer"):
            value = getattr(self, name)
            if value is not None and value > slots:
                raise ConfigError(
                    f"Federation: {name} = {value} can never be reached with {slots} jobs open at "
                    f"once: write at most {slots}, or a larger concurrency",
                    key=("federation", name),
                )
        given = self._with_published(policy, slots)
        rest_after = REST_AFTER if given.rest_after is None else given.rest_after
        if given._has_rounds(slots):
            worth = policy.stale_answers if given.staleness is None else given.staleness
            holds = given.late_hold_slots
            if holds and policy.cohort_rule == "everyone":
                raise ConfigError(
                    f"Federation: {policy.name} asks every available client, whatever the number "
                    "of slots, so late answers cannot hold any: leave late_hold_slots out for it",
                    key=("federation", "late_hold_slots"),
                )
            return Federation(
                concurrency=slots,
                refill=slots,
                buffer=slots,
                staleness=worth,
                late_hold_slots=policy.late_hold_slots if holds is None else holds,
                rest_after=rest_after,
                check_reports=given.check_reports,
            )
        if given.late_hold_slots is not None:
            raise ConfigError(
                "Federation: late_hold_slots is for rounds; without rounds every client holds its "
                "slot until it answers: leave it out",
                key=("federation", "late_hold_slots"),
            )
        if policy.rounds_only is not None:
            raise ConfigError(
                f"{policy.name} works in rounds only: {policy.rounds_only}; write federation = "
                '"rounds" for this policy, or choose another',
                key=("federation",),
            )
        worth = PolynomialWorth() if given.staleness is None else given.staleness
        if isinstance(worth, CachedModels):
            raise ConfigError(
                "Federation: the cache of SAFA is filled round by round, so it needs rounds; "
                "choose another staleness rule",
                key=("federation", "staleness"),
            )
        trigger = given.trigger or Buffer(answers=given.buffer or slots)
        trigger.require_reachable(slots)
        return replace(
            given,
            concurrency=slots,
            refill=given.refill or 1,
            buffer=None,
            trigger=trigger,
            staleness=worth,
            rest_after=rest_after,
        )

    @property
    def in_rounds(self) -> bool:
        """Whether these settings, filled in, are rounds."""
        return self.trigger is None

    @property
    def worth(self) -> Staleness:
        """What old answers are worth, filled in."""
        assert self.staleness is not None
        return self.staleness

    @property
    def slots(self) -> int:
        """C, filled in."""
        assert self.concurrency is not None
        return self.concurrency
