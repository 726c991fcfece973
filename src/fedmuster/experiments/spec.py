"""What to run, as a TOML file: rounds, seeds, a world, a reward, one or more policies.

::

    rounds = 1000
    seeds = [0, 1, 2]

    [world]
    name = "bsfl-groups"
    num_clients = 500
    cohort_size = 25

    [reward]            # against which regret is measured
    alpha = 2.0
    beta = 1.0

    [[policy]]
    name = "bsfl"
    alpha = 2.0

    [[policy]]
    name = "random"
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import tomli_w

from fedmuster.core.config import from_table, named, to_table
from fedmuster.core.errors import ConfigError, FedmusterError
from fedmuster.core.policy import Policy
from fedmuster.experiments.toml_lines import line_of
from fedmuster.objectives.reward import CohortReward
from fedmuster.policies import POLICIES
from fedmuster.policies.genie import Genie
from fedmuster.simulation import Simulation
from fedmuster.worlds import WORLDS
from fedmuster.worlds.world import World

_FORBIDDEN_LABELS = ("", ".", "..", "report", "experiment.toml")  # a label becomes a folder there
_LONGEST_LABEL = 100
_MOST_ROUNDS = 10**9
_KEYS = ("rounds", "seed", "seeds", "regret", "world", "reward", "policy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """Policies that face the same world, with the same luck, over the same seeds."""

    policies: Mapping[str, Policy[Any]]
    """By label, which is the policy's name unless the spec says otherwise."""
    world: World
    rounds: int
    seeds: tuple[int, ...] = (0,)
    reward: CohortReward = CohortReward()
    regret: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= _MOST_ROUNDS:
            raise ConfigError(
                f"rounds = {self.rounds}, expected an integer >= 1, and at most {_MOST_ROUNDS:,}",
                key=("rounds",),
            )
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(
                f"seeds = {list(self.seeds)}, expected distinct integers >= 0", key=("seeds",)
            )
        if not self.policies:
            raise ConfigError("no policy: write [[policy]] with a name", key=())
        for label in self.policies:
            fits = label not in _FORBIDDEN_LABELS and set(label).isdisjoint("/\\\0")
            if not fits or len(label.encode()) > _LONGEST_LABEL:
                raise ConfigError(
                    f"label = {label!r}, expected a name without slashes that can be a folder"
                )

    @property
    def genie(self) -> Genie | None:
        """Who measures regret."""
        if not self.regret:
            return None
        return Genie(**asdict(self.reward))

    def cells(self) -> dict[Path, "Experiment"]:
        """One experiment for each policy and seed, by the folder it belongs into."""
        return {
            Path(label) / f"seed-{seed}": replace(self, policies={label: policy}, seeds=(seed,))
            for label, policy in self.policies.items()
            for seed in self.seeds
        }

    def rehearse(self) -> None:
        """Play one round of each policy, so that what does not fit fails before anything runs."""
        for number, policy in enumerate(self.policies.values()):
            try:
                Simulation(policy, self.world, seed=self.seeds[0], genie=self.genie).step()
            except FedmusterError as error:
                key = ("policy", str(number), *getattr(error, "key", ()))
                raise ConfigError(str(error), key=key) from error

    @classmethod
    def load(cls, path: Path, *, rehearse: bool = False) -> Self:
        """Read a spec; errors name the file, the line, the key and what was expected."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is no text file: {error}") from error
        try:
            experiment = cls.from_table(tomllib.loads(text))
            if rehearse:
                experiment.rehearse()
        except RecursionError:
            raise ConfigError(f"{path}: nested too deeply") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from None
        except ConfigError as error:
            line = line_of(text, error.key)
            where = f"{path}, line {line}" if line else str(path)
            key = ".".join(error.key)
            raise ConfigError(f"{where}: {key + ': ' if key else ''}{error}") from None
        return experiment

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """An experiment from parsed TOML."""
        for key in table:
            if key not in _KEYS:
                raise ConfigError(
                    f"unknown key {key!r}; expected one of: {', '.join(_KEYS)}", key=(key,)
                )
        for key in ("rounds", "world", "policy"):
            if key not in table:
                raise ConfigError(f"missing key {key!r}; a spec needs rounds, [world], [[policy]]")
        numbers = from_table(
            _Numbers, {k: table[k] for k in ("rounds", "seed", "seeds", "regret") if k in table}
        )
        if numbers.seed is not None and numbers.seeds is not None:
            raise ConfigError("give seed or seeds, not both", key=("seed",))
        seeds = (numbers.seed or 0,) if numbers.seeds is None else numbers.seeds
        reward = table.get("reward", {})
        if not isinstance(reward, Mapping):
            raise ConfigError(f"reward = {reward!r}, expected a table", key=("reward",))
        return cls(
            policies=_policies(table["policy"]),
            world=named(WORLDS, table["world"], key=("world",), what="world"),
            rounds=numbers.rounds,
            seeds=seeds,
            reward=from_table(CohortReward, reward, key=("reward",)),
            regret=numbers.regret,
        )

    def to_toml(self) -> str:
        """A spec that :meth:`load` reads back to the same experiment."""
        policies = []
        for label, policy in self.policies.items():
            table = to_table(policy)
            policies.append(table if label == table["name"] else {**table, "label": label})
        return tomli_w.dumps(
            {
                "rounds": self.rounds,
                "seeds": list(self.seeds),
                "regret": self.regret,
                "world": to_table(self.world),
                "reward": to_table(self.reward),
                "policy": policies,
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Numbers:
    rounds: int
    seed: int | None = None
    seeds: tuple[int, ...] | None = None
    regret: bool = True


def _policies(tables: Any) -> dict[str, Policy[Any]]:
    numbered = isinstance(tables, list)
    policies: dict[str, Policy[Any]] = {}
    for number, table in enumerate(tables if numbered else [tables]):
        key = ("policy", str(number)) if numbered else ("policy",)
        label = None
        if isinstance(table, Mapping):
            label = table.get("label")
            table = {k: v for k, v in table.items() if k != "label"}
        policy: Policy[Any] = named(POLICIES, table, key=key, what="policy")
        label = policy.name if label is None else label
        if not isinstance(label, str):
            raise ConfigError(f"label = {label!r}, expected a string", key=(*key, "label"))
        if label in policies:
            raise ConfigError(
                f"two policies are called {label!r}: give one of them another label",
                key=(*key, "label") if numbered else key,
            )
        policies[label] = policy
    return policies
