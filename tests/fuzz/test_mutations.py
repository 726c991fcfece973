"""Files of every kind, bent at random: refused or read as they were, and never a traceback.

The long form is ``make fuzz``.
"""

from pathlib import Path

import pytest
from tests.fuzz.campaign import Tally, run
from tests.fuzz.kinds import KINDS

_MOST_KIB = 64 * 1024
"""What libraries take when they are used for the first time; the files are smaller than 1 MiB."""


@pytest.mark.slow
def test_bent_files_are_refused_or_read_as_they_were(tmp_path: Path) -> None:
    tally = run(range(25), tmp_path, Tally())
    assert tally.bad == []
    assert tally.total() == 25 * len(KINDS)
    assert tally.total("refused") > tally.total() / 2
    assert tally.most_kib < _MOST_KIB


def test_a_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    tally = Tally()
    tally.add("spec", "refused")
    tally.bad.append("spec, seed 3: wrong")
    tally.save(tmp_path / "state.json", 4)
    assert Tally.load(tmp_path / "state.json") == (tally, 4)
    assert Tally.load(tmp_path / "none.json") == (Tally(), 0)
