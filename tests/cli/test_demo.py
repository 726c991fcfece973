"""What the demo says of its numbers is true of them."""

from dataclasses import replace
from pathlib import Path

from fedmuster.cli.demo import LESSON, demo_experiment
from fedmuster.experiments.run import execute
from fedmuster.experiments.sweep import lay_out
from fedmuster.report.runs import load
from fedmuster.report.summary import summarise


def test_the_lesson(tmp_path: Path) -> None:
    whole = demo_experiment()
    named = {label: whole.policies[label] for label in ("bsfl", "fastest", "random")}
    for cell in lay_out(tmp_path / "demo", replace(whole, policies=named)):
        execute(cell)
    bsfl, fastest, random = summarise(load([tmp_path / "demo"]), "random").policies
    assert "less than half of random's time" in LESSON
    assert bsfl.means["seconds_to_target"].mean < random.means["seconds_to_target"].mean / 2
    assert bsfl.differences["seconds_to_target"].verdict == "lower"
    assert "in some seeds their data is not enough" in LESSON
    assert 0 < fastest.reached("seconds_to_target") < len(whole.seeds)
