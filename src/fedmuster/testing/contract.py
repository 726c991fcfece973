"""The contract: the points that every policy must keep, those of other packages included."""

import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, get_args

import tomli_w

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import FedmusterWarning
from fedmuster.core.policy import CohortRule, Policy
from fedmuster.testing.cohort_checks import (
    newcomer_fault,
    scarcity_fault,
    silence_fault,
    tie_fault,
    validity_fault,
)
from fedmuster.testing.late_checks import late_fault
from fedmuster.testing.learning_checks import growth_fault, learning_fault, poison_fault
from fedmuster.testing.liveness_checks import liveness_fault
from fedmuster.testing.playing import ContractError
from fedmuster.testing.repetition_checks import (
    borrowing_fault,
    global_rng_fault,
    restart_fault,
    row_order_fault,
    select_fault,
    trajectory_fault,
)
from fedmuster.testing.ticket_checks import roundless_fault
from fedmuster.testing.tiny_federation import Knowledge


def configuration_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """What is wrong with the policy as a configuration."""
    del knowledge
    kind: Any = type(policy)
    if not getattr(getattr(kind, "__dataclass_params__", None), "frozen", False):
        return (
            "it is no frozen dataclass, so its hyper-parameters could change during a run; "
            "decorate it with @dataclass(frozen=True, kw_only=True, slots=True)"
        )
    positional = [item.name for item in fields(kind) if item.init and not item.kw_only]
    if positional:
        return f"{', '.join(positional)} can be passed by position; make it kw_only=True"
    try:
        default = kind()
    except TypeError as error:
        return f"{kind.__name__}() failed ({error}); give every hyper-parameter a default"
    return _trait_fault(policy) or _table_fault(default) or _table_fault(policy)


def _trait_fault(policy: Policy[Any]) -> str | None:
    for trait, expected in (
        ("name", lambda value: isinstance(value, str) and value),
        ("cohort_rule", lambda value: value in get_args(CohortRule)),
        ("oracle", lambda value: isinstance(value, bool)),
        ("learns", lambda value: isinstance(value, bool)),
        ("assigns_edges", lambda value: isinstance(value, bool)),
        ("hears_late", lambda value: isinstance(value, bool)),
        ("late_hold_slots", lambda value: isinstance(value, bool)),
        ("rounds_only", lambda value: value is None or bool(isinstance(value, str) and value)),
    ):
        value = getattr(policy, trait, None)
        if not expected(value):
            return (
                f"its trait {trait} is {value!r}; declare it as fedmuster.core.policy.Policy says "
                "(PolicyTraits has the usual ones)"
            )
    return None


def _table_fault(policy: Any) -> str | None:
    try:
        hash(policy)
    except TypeError as error:
        return f"it cannot be hashed ({error}); use tuples and frozen dataclasses as fields"
    text = tomli_w.dumps(to_table(policy))
    again = named({policy.name: type(policy)}, tomllib.loads(text), key=(), what="policy")
    # The repr too: a saved state knows by it which policy it belongs to.
    if again != policy or repr(again) != repr(policy):
        return f"written to TOML and read back, {policy!r} became {again!r}; it must stay the same"
    return None


FLAT: Final = Knowledge()
AT_EDGES: Final = Knowledge(num_edges=3)


def knowledges(policy: Policy[Any]) -> tuple[Knowledge, ...]:
    """The federations to try a policy in: flat, and with edge servers if it assigns them."""
    # Point 1 reports a policy without this trait.
    return (FLAT, AT_EDGES) if getattr(policy, "assigns_edges", False) else (FLAT,)


@dataclass(frozen=True, slots=True)
class Check:
    """One point of the contract; call it with a policy.

    What a point asks depends on the traits that the policy declares (``cohort_rule``, ``oracle``,
    ``learns``, ``assigns_edges``, ``rounds_only``), never on its name.

    Args:
        point: its number.
        title: what it asks.
        fault: says what is wrong with a policy, or None.
    """

    point: int
    title: str
    fault: Callable[[Policy[Any], Knowledge], str | None]

    def __call__(self, policy: Policy[Any], *, knowledge: Knowledge | None = None) -> None:
        """Raise :class:`ContractError` unless ``policy`` keeps this point; see check_policy."""
        for told in knowledges(policy) if knowledge is None else (knowledge,):
            where = "" if told.num_edges == 0 else f" at {told.num_edges} edge servers"
            who = f"{type(policy).__name__} breaks “{self.title}”{where}"
            try:
                with warnings.catch_warnings():  # of federations that are too small, or say little
                    warnings.simplefilter("ignore", FedmusterWarning)
                    fault = self.fault(policy, told)
            except Exception as error:
                raise ContractError(
                    self.point, f"{who}: it raised {type(error).__name__}: {error}"
                ) from error
            if fault is not None:
                raise ContractError(self.point, f"{who}: {fault}")

    def __str__(self) -> str:
        return f"{self.point} {self.title}"


CHECKS: Final = (
    Check(
        1,
        "is a frozen dataclass that constructs with no arguments and round-trips TOML",
        configuration_fault,
    ),
    Check(
        2,
        "returns sorted, distinct, available ids, as many as its rule and budgets allow",
        validity_fault,
    ),
    Check(3, "select changes nothing and repeats", select_fault),
    Check(4, "observe keeps no reference to its inputs", borrowing_fault),
    Check(5, "50 rounds repeat, also in a fresh process with another hash seed", trajectory_fault),
    Check(6, "uses no global random generator", global_rng_fault),
    Check(7, "the state keeps its names, types and size", growth_fault),
    Check(8, "save, restore, continue is bit-identical", restart_fault),
    Check(9, "ties favour nobody", tie_fault),
    Check(10, "the row order of feedback does not matter", row_order_fault),
    Check(
        11,
        "copes with one client, m = K, fewer than m available, none, and none affordable",
        scarcity_fault,
    ),
    Check(
        12, "copes with failed, empty and partial feedback; no NaN enters the state", poison_fault
    ),
    Check(13, "clients joining mid-run are explored", newcomer_fault),
    Check(
        14,
        "beats uniform choice on an easy instance, or does not depend on what it observed",
        learning_fault,
    ),
    Check(16, "a client that never answers does not keep its place", silence_fault),
    Check(
        17,
        "runs round-less: answers one by one, in any order, to tickets of different ages",
        roundless_fault,
    ),
    Check(
        18,
        "learns from late answers in any order and keeps no reference to them, if it hears them",
        late_fault,
    ),
    Check(
        19,
        "silent clients and floods of newcomers neither stop the federation nor take its places",
        liveness_fault,
    ),
)
"""All points but 15, golden values, which needs the paper: :mod:`fedmuster.testing.playing`."""


def check_policy(policy: Policy[Any], *, knowledge: Knowledge | None = None) -> None:
    """Run all points on a policy; raise :class:`ContractError` at the first that it breaks.

    Args:
        policy: an instance, with the hyper-parameters that you mean to use.
        knowledge: what the federations that it is tried in tell the server, and whether they have
            edge servers; None for everything, and for both if the policy knows edge servers.

    Example:
        >>> from fedmuster.policies import Random
        >>> check_policy(Random())
    """
    for check in CHECKS:
        check(policy, knowledge=knowledge)
