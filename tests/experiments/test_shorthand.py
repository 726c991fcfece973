import pytest

from fedmuster.core.config import parse
from fedmuster.core.errors import ConfigError


def test_a_setting_cannot_change_the_name() -> None:
    with pytest.raises(ConfigError):
        parse("bsfl:name=random")


def test_values_are_toml_or_else_strings() -> None:
    table = parse('trace:path=data/x.csv,mode="replay",cohort_size=3,availability={name="always"}')
    assert table == {
        "name": "trace",
        "path": "data/x.csv",
        "mode": "replay",
        "cohort_size": 3,
        "availability": {"name": "always"},
    }
