"""What to run, as a TOML file: rounds, seeds, a world, a reward, one or more policies.

README.md has an example; docs/training.md, docs/privacy.md, docs/report.md and docs/roundless.md
say what the tables ``[training]``, ``[privacy]``, ``[watch]`` and ``[federation]`` hold. A run
without one of them does without it, or has rounds.
"""

import math
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import tomli_w

from fedmuster.bandits.rewards import CohortReward
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.config import Key, from_table
from fedmuster.core.errors import ConfigError, FedmusterError
from fedmuster.core.policy import Policy
from fedmuster.experiments.spec_tables import (
    UnavailableClass,
    line_of,
    read_part,
    read_policies,
    read_world,
    table_of,
    unavailable_in,
)
from fedmuster.federation import UNLIMITED, Federation, Horizon, Simulation, Watch
from fedmuster.policies.genie import Genie
from fedmuster.privacy.budget import Privacy, Protection
from fedmuster.training.training import Training
from fedmuster.worlds.world import World

_FORBIDDEN_LABELS = ("", ".", "..", "report", "experiment.toml")  # a label becomes a folder there
_LONGEST_LABEL = 100
_CONTROLS = ("Cc", "Cf", "Cs")
"""Unicode's categories of control and format characters, and of halves of characters."""
_KEYS = (
    *("rounds", "seconds", "seed", "seeds", "regret"),
    *("world", "reward", "training", "privacy", "watch", "federation", "policy"),
)
LEDGER_NAME = "ledger.sqlite"


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """Policies that face the same world, with the same luck, over the same seeds."""

    policies: Mapping[str, Policy[Any]]
    """By label, which is the policy's name unless the spec says otherwise."""
    world: World
    rounds: int
    seeds: tuple[int, ...] = (0,)
    reward: CohortReward | EdgeUtility | None = None
    """What regret is measured in; None for what suits the world."""
    regret: bool | None = None
    """Whether to measure regret; None to do it where it is defined."""
    training: Training | None = None
    seconds: float | None = None
    """End a run with the round in which simulated time reaches this; ``rounds`` at the latest."""
    privacy: Privacy | None = None
    unprotected: frozenset[str] = frozenset()
    """The labels that run without privacy where the others have it."""
    watch: Watch | None = None
    """Whose scores the journals keep."""
    federation: Federation | None = None
    """When clients are asked, when the server aggregates, what old answers are worth; None for
    rounds, or as each policy was published."""
    federations: Mapping[str, Federation] = field(default_factory=dict)
    """By label, what single policies have in place of it."""

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ConfigError(f"seconds = {self.seconds}, expected a number > 0", key=("seconds",))
        if not 1 <= self.rounds <= UNLIMITED:
            raise ConfigError(
                f"rounds = {self.rounds}, expected an integer >= 1, and at most {UNLIMITED:,}",
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
            fits &= all(unicodedata.category(each) not in _CONTROLS for each in label)
            if not fits or len(label.encode()) > _LONGEST_LABEL:
                raise ConfigError(
                    f"label = {label!r}, expected a name without slashes and control characters "
                    "that can be a folder"
                )

        self._check_privacy()
        self._check_reward()

    def _check_reward(self) -> None:
        kind = reward_kind(self.world)
        if self.reward is None:
            object.__setattr__(self, "reward", kind())
        elif not isinstance(self.reward, kind):
            raise ConfigError(
                f"reward is a {type(self.reward).__name__}, but in the world {self.world.name} "
                f"regret is measured in a {kind.__name__}",
                key=("reward",),
            )

    def _check_privacy(self) -> None:
        if self.unprotected and self.privacy is None:
            raise ConfigError(
                "private = false, but nobody has privacy: write a [privacy] table, or leave it out"
            )
        if self.privacy is not None:
            object.__setattr__(self, "privacy", self.privacy.settled("seeded"))
        shared = self.privacy is not None and self.privacy.ledger is not None
        if shared and len(self.policies) * len(self.seeds) > 1:
            raise ConfigError(
                "a ledger is for one run at a time, and compared runs must not spend each other's "
                "budgets: leave ledger out (each run gets its own), or run one policy and one seed",
                key=("privacy", "ledger"),
            )

    @property
    def genie(self) -> Genie | EdgeUtility | None:
        """Who measures regret, or in which utility."""
        if self.regret is False:
            return None
        return Genie.of(self.reward) if isinstance(self.reward, CohortReward) else self.reward

    @property
    def horizon(self) -> Horizon:
        """When a run is over."""
        return Horizon(rounds=self.rounds, seconds=self.seconds)

    def simulation(
        self, folder: Path, *, run: str, kind: type[Simulation[Any]] = Simulation
    ) -> Simulation[Any]:
        """The run of a cell: an experiment with one policy and one seed.

        Args:
            folder: where its ledger is, unless the experiment says otherwise.
            run: its name in the ledger.
            kind: the class that plays it.
        """
        ((label, policy),) = self.policies.items()
        (seed,) = self.seeds
        self.require_available()
        protection = None
        if self.privacy is not None and label not in self.unprotected:
            protection = Protection(privacy=self.privacy, ledger=self.ledger(folder), run=run)
        return kind(
            policy,
            self.world,
            seed=seed,
            federation=self.federation_of(label),
            genie=self.genie,
            must_judge=self.regret is True,
            training=self.training,
            horizon=self.horizon,
            protection=protection,
            watch=self.watch,
        )

    def federation_of(self, label: str) -> Federation:
        """What is set for this policy: by its own table, or else by ``[federation]``.

        Where the policy's table says ``rounds``, only what holds in rounds too counts of
        ``[federation]``.
        """
        own, common = self.federations.get(label, Federation()), self.federation or Federation()
        if own.rounds or common.rounds:
            common = Federation(
                concurrency=common.concurrency,
                rounds=True,
                rest_after=common.rest_after,
                check_reports=common.check_reports,
            )
        return common.overridden_by(own)

    @property
    def unavailable(self) -> list[UnavailableClass]:
        """The parts whose classes cannot be imported: runs can be reported on, but not played."""
        configs = [config for config in (self.training, self.privacy) if config is not None]
        parts = [part for config in configs for part in unavailable_in(config).values()]
        whole = (self.world, *self.policies.values())
        return [config for config in whole if isinstance(config, UnavailableClass)] + parts

    def require_available(self) -> None:
        """Refuse to play runs of which classes cannot be imported."""
        for config in self.unavailable:
            config.refuse()

    def with_throwaway_ledger(self) -> Self:
        """A copy with seeded noise and a ledger in the run folder: nothing real is debited."""
        if self.privacy is None:
            return self
        return replace(self, privacy=replace(self.privacy, ledger=None, noise="seeded"))

    def ledger(self, folder: Path) -> Path:
        """The file that a run in this folder debits from, if it does."""
        named = None if self.privacy is None else self.privacy.ledger
        return folder / LEDGER_NAME if named is None else Path(named)

    def cells(self) -> dict[Path, "Experiment"]:
        """One experiment for each policy and seed, by the folder it belongs into."""
        return {
            Path(label) / f"seed-{seed}": self._cell(label, seed)
            for label in self.policies
            for seed in self.seeds
        }

    def _cell(self, label: str, seed: int) -> "Experiment":
        return replace(
            self,
            policies={label: self.policies[label]},
            seeds=(seed,),
            unprotected=self.unprotected & {label},
            federations={k: v for k, v in self.federations.items() if k == label},
        )

    def extended(self, wanted: "Experiment") -> "Experiment":
        """This experiment with the policies, seeds and later end that ``wanted`` adds.

        Raises:
            ConfigError: ``wanted`` differs in something else; the error has the key.
        """
        one, two = self.to_table(), wanted.to_table()
        for table, experiment in ((one, self), (two, wanted)):
            of_all = dict(zip(experiment.policies, table.pop("policy"), strict=True))
            common = [label for label in self.policies if label in wanted.policies]
            table["policy"] = {label: of_all[label] for label in common}
            for extendable in ("seeds", "rounds", "seconds"):
                table.pop(extendable, None)
        difference = first_difference(one, two)
        if difference is None and wanted.rounds < self.rounds:
            difference = ("rounds",), self.rounds, wanted.rounds
        if difference is None and (wanted.seconds or math.inf) < (self.seconds or math.inf):
            difference = ("seconds",), self.seconds, wanted.seconds
        if difference is not None:
            key, ours, theirs = difference
            raise ConfigError(
                f"{'.'.join(key)} = {ours!r} there, {theirs!r} in the new spec: more rounds, "
                "seeds and policies can be added, nothing else can change",
                key=key,
            )
        return replace(
            wanted,
            policies={**self.policies, **wanted.policies},
            seeds=tuple(dict.fromkeys((*self.seeds, *wanted.seeds))),
            unprotected=self.unprotected | wanted.unprotected,
            federations={**self.federations, **wanted.federations},
        )

    def rehearse(self) -> None:
        """Play one round of each policy, so that parts that do not fit fail before any run."""
        seed = self.seeds[0]
        with _blaming("world"):
            problem = self.world.start(seed).problem
        if self.training is not None:
            protected = self.privacy is not None and self.unprotected < set(self.policies)
            ways = [
                self.federation_of(label).settled(policy, problem)
                for label, policy in self.policies.items()
            ]
            for worth, in_rounds in dict.fromkeys((way.worth, way.in_rounds) for way in ways):
                with (
                    _blaming("training"),
                    closing(
                        self.training.start(
                            num_clients=problem.num_clients,
                            seed=seed,
                            num_samples=problem.num_samples,
                            num_edges=problem.num_servers,
                            staleness=worth,
                            keeps_late=in_rounds,
                        )
                    ) as trainer,
                ):
                    if protected:
                        trainer.require_releasable()
        for number, label in enumerate(self.policies):
            cell = self._cell(label, seed).with_throwaway_ledger()
            with (
                _blaming("policy", str(number)),
                TemporaryDirectory() as folder,
                closing(cell.simulation(Path(folder), run="rehearsal")) as simulation,
            ):
                simulation.step()

    @classmethod
    def load(cls, path: Path, *, rehearse: bool = False, reading: bool = False) -> Self:
        """Read a spec; errors name the file, the line, the key and what was expected.

        Args:
            path: of the TOML file.
            rehearse: whether to play one round of each policy, see :meth:`rehearse`.
            reading: whether classes that cannot be imported are accepted, as
                :class:`UnavailableClass`, because no run is played.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is no text file: {error}") from error
        try:
            experiment = cls.from_table(_parsed(text), reading=reading).beside(path)
            if rehearse:
                experiment.rehearse()
        except RecursionError:
            raise ConfigError(f"{path}: nested too deeply") from None
        except ConfigError as error:
            line = line_of(text, error.key)
            where = f"{path}, line {line}" if line else str(path)
            key = ".".join(error.key)
            told = f"{where}: {key + ': ' if key else ''}{error}"
            raise type(error)(told, key=error.key) from None
        return experiment

    def beside(self, path: Path) -> Self:
        """The same, with the path of its ledger, if it names one, taken from that file's folder."""
        if self.privacy is None or self.privacy.ledger is None:
            return self
        ledger = str((path.parent / self.privacy.ledger).resolve())
        return replace(self, privacy=replace(self.privacy, ledger=ledger))

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, reading: bool = False) -> Self:
        """An experiment from parsed TOML; ``reading`` as for :meth:`load`."""
        for key in table:
            if key not in _KEYS:
                raise ConfigError(
                    f"unknown key {key!r}; expected one of: {', '.join(_KEYS)}", key=(key,)
                )
        table = {"rounds": UNLIMITED, **table} if "seconds" in table else table
        for key in ("rounds", "world", "policy"):
            if key not in table:
                raise ConfigError(
                    f"missing key {key!r}; a spec needs rounds or seconds, [world], [[policy]]"
                )
        numbers = from_table(_Numbers, {k: v for k, v in table.items() if k in _NUMBERS})
        if numbers.seed is not None and numbers.seeds is not None:
            raise ConfigError("give seed or seeds, not both", key=("seed",))
        contestants = read_policies(table["policy"], reading=reading)
        reward = table.get("reward")
        at_edges = isinstance(reward, Mapping) and "utility" in reward  # an EdgeUtility
        world = read_world(table["world"], reading=reading, hierarchical=at_edges)
        tables: dict[str, Any] = {}
        for key, kind in {**_TABLES, "reward": reward_kind(world)}.items():
            if key in table:
                tables[key] = read_part(kind, table[key], key=key, reading=reading)
        return cls(
            **contestants._asdict(),
            world=world,
            rounds=numbers.rounds,
            seeds=(numbers.seed or 0,) if numbers.seeds is None else numbers.seeds,
            regret=numbers.regret,
            seconds=numbers.seconds,
            **tables,
        )

    def to_table(self) -> dict[str, Any]:
        """The spec as a table: what is None is left out."""
        policies = []
        for label, policy in self.policies.items():
            settings = table_of(policy)
            if label != settings["name"]:
                settings["label"] = label
            if label in self.unprotected:
                settings["private"] = False
            if label in self.federations:
                settings["federation"] = table_of(self.federations[label])
            policies.append(settings)
        table: dict[str, Any] = {
            "rounds": None if self.seconds and self.rounds == UNLIMITED else self.rounds,
            "seconds": self.seconds,
            "regret": self.regret,
            "seeds": list(self.seeds),
        }
        for key in ("world", "reward", *_TABLES):
            config = getattr(self, key)
            table[key] = None if config is None else table_of(config)
        table["policy"] = policies
        return {key: value for key, value in table.items() if value is not None}

    def to_toml(self) -> str:
        """A spec that :meth:`load` reads back to the same experiment."""
        return tomli_w.dumps(self.to_table())


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also a number of thousands of digits
        raise ConfigError(f"not valid TOML: {error}") from None


def first_difference(
    one: Mapping[str, Any], two: Mapping[str, Any], key: Key = ()
) -> tuple[Key, Any, Any] | None:
    """The first key, also of nested tables, whose value differs, and both values.

    Example:
        >>> first_difference({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}})
        (('b', 'c'), 2, 3)
    """
    for name in {**one, **two}:
        ours, theirs, path = one.get(name), two.get(name), (*key, name)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            if (found := first_difference(ours, theirs, path)) is not None:
                return found
        elif ours != theirs:
            return path, ours, theirs
    return None


def reward_kind(world: World) -> type[CohortReward] | type[EdgeUtility]:
    """What a spec's ``[reward]`` describes in this world."""
    return EdgeUtility if world.hierarchical else CohortReward


@dataclass(frozen=True, kw_only=True, slots=True)
class _Numbers:
    rounds: int
    seed: int | None = None
    seeds: tuple[int, ...] | None = None
    regret: bool | None = None
    seconds: float | None = None


_NUMBERS = tuple(item.name for item in fields(_Numbers))
_TABLES: dict[str, type] = {
    "training": Training,
    "privacy": Privacy,
    "watch": Watch,
    "federation": Federation,
}


@contextmanager
def _blaming(*table: str) -> Iterator[None]:
    """Put what fails down to this table, unless the error names a key of the whole spec itself."""
    try:
        yield
    except FedmusterError as error:
        key: tuple[str, ...] = getattr(error, "key", ())
        if not key or key[0] not in _KEYS:
            key = (*table, *key)
        raise ConfigError(str(error), key=key) from error
