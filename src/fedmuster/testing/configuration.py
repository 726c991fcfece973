"""Point 1: a policy is a frozen, keyword-only dataclass of hyper-parameters that TOML can hold."""

import tomllib
from dataclasses import fields
from typing import Any, get_args

import tomli_w

from fedmuster.core.config import named, to_table
from fedmuster.core.policy import CohortRule, Policy
from fedmuster.testing.federation import Knowledge


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
