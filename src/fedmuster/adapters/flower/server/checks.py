"""What must be right before the first round: refused at the start, with what to write instead."""

from collections.abc import Iterator
from inspect import signature
from typing import Any

from flwr.serverapp.strategy import FedXgbCyclic, Strategy

from fedmuster.adapters.flower.layers import layers, setting_of
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy


def check_strategy(
    strategy: object, *, policy: Policy[Any], cohort_size: int, num_to_ask: int
) -> None:
    """Refuse what would choose among the chosen, or wait for more nodes than a cohort has."""
    if not isinstance(strategy, Strategy):
        raise ConfigError(
            f"Muster: strategy is a {type(strategy).__module__}.{type(strategy).__name__}, "
            "expected one of flwr.serverapp.strategy (Flower's message API): write, for example, "
            "from flwr.serverapp.strategy import FedAvg"
        )
    problems = list(_problems(strategy, policy, cohort_size=cohort_size, num_to_ask=num_to_ask))
    if problems:  # all at once, so that nobody mends them one after the other
        raise ConfigError("\nand: ".join(problems))


def _problems(
    strategy: Strategy, policy: Policy[Any], *, cohort_size: int, num_to_ask: int
) -> Iterator[str]:
    for layer in layers(strategy):
        name = type(layer).__name__
        if isinstance(layer, FedXgbCyclic) and cohort_size != 1:
            yield f"{name} trains one node a round: write cohort_size=1"
            cohort_size = 1
        fraction = getattr(layer, "fraction_train", 1.0)
        if fraction == 0.0:
            yield (
                f"{name}: fraction_train = 0.0, so nobody would train, and Muster is for training: "
                f"write {_how(layer, 'fraction_train', 1.0)}, or start {name} without Muster"
            )
        elif fraction != 1.0:
            yield (
                f"{name}: fraction_train = {fraction}, which would choose again among those whom "
                f"fedmuster has chosen: write {_how(layer, 'fraction_train', 1.0)}, and how many "
                "shall train as cohort_size of Muster"
            )
        for setting in ("min_train_nodes", "min_available_nodes"):
            least = getattr(layer, setting, 1)
            if least > cohort_size:
                yield (
                    f"{name}: {setting} = {least} is more than the cohort of {cohort_size} that "
                    "it will be given, so it would wait for ever: write "
                    f"{_how(layer, setting, 1)}, and Muster(min_nodes={least}) to wait for so many "
                    "nodes to be there"
                )
        sampled = getattr(layer, "num_sampled_clients", cohort_size)
        if sampled != cohort_size:
            yield (
                f"{name}: num_sampled_clients = {sampled}, to which its noise is fitted, but "
                f"cohort_size is {cohort_size}: write {name}(num_sampled_clients={cohort_size})"
            )
        elif getattr(layer, "accountant", None) is not None and num_to_ask != cohort_size:
            yield (
                f"{name} accounts for exactly {sampled} clients, but {num_to_ask} are asked: "
                "leave over_selection out"
            )
    least = least_nodes(strategy)
    if policy.cohort_rule == "at most" and 1 < least <= cohort_size:
        yield (
            f"policy {policy.name} may choose a single client, but the strategy would wait for "
            f"{least}: write min_train_nodes=1, min_available_nodes=1"
        )


def _how(layer: Strategy, setting: str, value: float) -> str:
    """As an argument, where the class takes it; some set it themselves (FedXgbCyclic does)."""
    kinds = signature(type(layer)).parameters
    takes = setting in kinds or any(p.kind is p.VAR_KEYWORD for p in kinds.values())
    if takes:
        return f"{type(layer).__name__}({setting}={value})"
    return f"strategy.{setting} = {value} before Muster(strategy, …)"


def check_policy(policy: Policy[Any], *, num_edges: int) -> None:
    """Refuse policies that a real federation cannot serve."""
    if policy.oracle:
        raise ConfigError(
            f"policy {policy.name} is an oracle and needs the truth, which only a simulated world "
            "knows: choose another policy"
        )
    if num_edges > 0 and not policy.assigns_edges:
        raise ConfigError(
            f"policy {policy.name} assigns nobody to edges: write "
            f"Lifted(policy={type(policy).__name__}(…)), or leave edges out"
        )


def least_nodes(strategy: Strategy) -> int:
    """With fewer nodes than this the strategy would wait, or refuse."""
    least = [1]
    for layer in layers(strategy):
        least += [getattr(layer, name, 1) for name in ("min_train_nodes", "min_available_nodes")]
        if getattr(layer, "accountant", None) is not None:  # it accounts for exactly so many
            least.append(getattr(layer, "num_sampled_clients", 1))
    return max(least)


def nodes_to_evaluate(strategy: Strategy, online: int) -> int:
    """How many nodes a strategy waits for before it evaluates, when so many are online."""
    fraction = setting_of(strategy, "fraction_evaluate", 1.0)
    if fraction == 0.0:
        return 0  # it does not evaluate, and asks nobody
    least = [setting_of(strategy, f"min_{what}_nodes", 1) for what in ("evaluate", "available")]
    return int(max(online * fraction, *least))
