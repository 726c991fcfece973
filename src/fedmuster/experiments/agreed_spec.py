"""The spec in the folder of a real federation's run, held against what a start asks for."""

from dataclasses import replace
from pathlib import Path

from fedmuster.core.errors import StateError
from fedmuster.experiments.origin import settings_of
from fedmuster.experiments.run import SPEC_NAME, prepare
from fedmuster.experiments.spec import Experiment, first_difference


def agree(folder: Path, asked: Experiment, *, done: int) -> Experiment:
    """Write down the spec that runs from now on, and return it.

    Args:
        folder: of the run.
        asked: what this start asks for.
        done: how many rounds are on record.

    Raises:
        StateError: the folder holds the run of another spec, or rounds without any spec.
    """
    path = folder / SPEC_NAME
    agreed = replace(asked, rounds=max(asked.rounds, done))
    held = Experiment.load(path) if path.is_file() else None
    if held is None and done > 0:
        raise StateError(
            f"{path} is gone, which says what ran here: restore it from a copy, or give Muster "
            "another folder"
        )
    if held is not None:
        difference = first_difference(settings_of(held), settings_of(agreed))
        if difference is not None:
            key, before, now = difference
            raise StateError(
                f"{folder} holds another run: {'.'.join(key)} was {before!r} and is {now!r}. Give "
                "Muster the settings that the run began with, or another folder"
            )
    if held != agreed:
        prepare(folder, agreed)
    return agreed
