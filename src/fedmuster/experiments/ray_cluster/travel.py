"""What cannot be played on another machine, and what to do about it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from fedmuster.core.config import Key, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.experiments.spec import Experiment

_PATHS: Final = ("path", "folder")
"""Keys of worlds and data sets that name files."""


def check_can_travel(experiment: Experiment) -> None:
    """Refuse what other machines do not have, or must not have."""
    _check_ledger(experiment)
    for table, config in (("world", experiment.world), ("training", experiment.training)):
        for key, path in _paths(to_table(config), (table,)) if config is not None else ():
            if not Path(path).expanduser().is_absolute():
                raise ConfigError(
                    f"{'.'.join(key)} = {path!r} is relative to the working directory, and other "
                    "machines have another: write the absolute path under which every node of the "
                    "cluster has it, or run without --on ray",
                    key=key,
                )


def _check_ledger(experiment: Experiment) -> None:
    privacy = experiment.privacy
    if privacy is None or experiment.unprotected == set(experiment.policies):
        return
    if not privacy.simulated:
        raise ConfigError(
            'noise = "secure" needs a ledger of real privacy, and that does not travel: of two '
            "copies each could spend the same budget. Run it where the ledger is, without --on "
            'ray; or simulate it with noise = "seeded"',
            key=("privacy", "noise"),
        )
    if privacy.ledger is not None:
        raise ConfigError(
            f"ledger = {privacy.ledger!r} stays on this machine, and the run would be on another: "
            "leave ledger out (the run gets its own, which travels with it), or run without "
            "--on ray",
            key=("privacy", "ledger"),
        )


def _paths(table: Mapping[str, Any], key: Key) -> Iterator[tuple[Key, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*key, name))
        elif name in _PATHS and isinstance(value, str):
            yield (*key, name), value
