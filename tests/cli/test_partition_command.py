"""``fedmuster partition``."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fedmuster.cli import cli
from fedmuster.core.errors import ConfigError
from fedmuster.training.partition import PARTITIONS


def run(*arguments: str) -> str:
    return CliRunner().invoke(cli, ["partition", *arguments], catch_exceptions=False).output


def test_partitions_are_listed() -> None:
    out = run()
    for name in PARTITIONS:
        assert name in out


def test_a_partition_is_described_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "who-has-what.png"
    settings = ("--data", "digits", "--clients", "30", "--out", str(picture))
    out = run("--partition", "shards:labels_per_client=3", *settings)
    assert "1,437 samples among 30 clients" in out
    assert "3 of 10 labels each" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_told(tmp_path: Path) -> None:
    picture = str(tmp_path / "x.png")
    for text, message in (
        ("shrads", "did you mean 'shards'"),
        ("iid:alpha=1", "unknown key 'alpha'"),
        ("dirichlet-labels:min_samples=1000", "min_samples <= 47"),
    ):
        with pytest.raises(ConfigError, match=message):
            run("--partition", text, "--out", picture)
    with pytest.raises(ConfigError, match="'digit'"):
        run("--partition", "iid", "--data", "digit", "--out", picture)
