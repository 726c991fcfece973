"""Runs in rounds that were begun before there was anything but rounds go on."""

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from fedmuster.core import state as states
from fedmuster.experiments.journal import Journal, JournalReader, rounds_done
from fedmuster.experiments.run import SPEC_NAME, execute

BEGUN = Path(__file__).with_name("runs_of_rounds.zip")
"""Seven rounds each of BSFL with scores, REFL and SAFA with late answers, PAUSE with a ledger."""


@pytest.mark.parametrize("name", ["bsfl", "refl", "safa", "pause"])
def test_a_run_of_an_older_version_goes_on(tmp_path: Path, name: str) -> None:
    """By cohorts and to six digits: another processor may round the first rounds otherwise."""
    with ZipFile(BEGUN) as archive:
        archive.extractall(tmp_path)
    begun, whole = tmp_path / name, tmp_path / "whole"
    whole.mkdir()
    (whole / SPEC_NAME).write_bytes((begun / SPEC_NAME).read_bytes())
    assert rounds_done(begun) == 7
    for folder in (begun, whole):
        execute(folder)
    one, two = JournalReader(begun), JournalReader(whole)
    assert len(one) == len(two) == 16
    for cohort, other in zip(one.cohorts, two.cohorts, strict=True):
        np.testing.assert_array_equal(cohort, other)
    for column, values in one.columns.items():
        np.testing.assert_allclose(values, two.columns[column], rtol=1e-6, err_msg=column)
    assert one.jobs is None


@pytest.mark.parametrize(("name", "late"), [("refl", "late.clients"), ("safa", "late.holds")])
def test_late_answers_are_among_what_goes_on(tmp_path: Path, name: str, late: str) -> None:
    with ZipFile(BEGUN) as archive:
        archive.extractall(tmp_path)
    with Journal(tmp_path / name) as journal:
        checkpoint = journal.checkpoint()
    assert checkpoint is not None
    assert checkpoint.loop is None
    assert checkpoint.trainer is not None
    arrays, _ = states.from_bytes(checkpoint.trainer, source=name)
    assert np.any(arrays[late])
