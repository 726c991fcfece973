"""``fedmuster demo``: an experiment that shows what the engine is for."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedmuster.cli.where import Where, processes_option

if TYPE_CHECKING:
    from fedmuster.experiments.spec import Experiment

LESSON = (
    "It shows that it pays not to wait for slow clients in every round (on average over the seeds, "
    "bsfl needs less than half of random's time for the same accuracy), and that always taking the "
    "fastest is a gamble: in some seeds their data is not enough, and the model never gets there."
)


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True
)
@processes_option
def demo(out: Path, processes: int | None) -> None:
    """See it work: seven policies train on handwritten digits, about a minute, one page."""
    from fedmuster.cli.display import say, tell
    from fedmuster.cli.running import show_comparison
    from fedmuster.experiments.sweep import lay_out_or_complete
    from fedmuster.report.write import write_summary

    # A demo that is there is shown again, or finished if it was interrupted.
    cells = lay_out_or_complete(out, demo_experiment())
    with Where(processes=processes).start() as play:
        play(cells)
    summary = show_comparison(cells, baseline="random")
    write_summary(summary, out / "report", formats=("png",))
    say(f"\nThe page: {out / 'report' / 'report.html'}")
    tell(LESSON)


def demo_experiment() -> "Experiment":
    """Handwritten digits on 100 clients with two labels each, of which 15 are slow; five seeds."""
    from fedmuster.experiments.spec import Experiment

    return Experiment.from_table(tomllib.loads(_SPEC))


_SPEC = """
rounds = 10_000
seconds = 60.0
seeds = [0, 1, 2, 3, 4]
regret = false
policy = ["bsfl", "pause", "cs-ucb", "rbcs-f", "power-of-choice", "fastest", "random"]

[world]
name = "bsfl-rates"
num_clients = 100
cohort_size = 10
rest = "fast"

[training]
data = "digits"
partition = { name = "shards", labels_per_client = 2 }
model = { name = "mlp", hidden = [32] }
local = { learning_rate = 0.05, batch_size = 10, epochs = 1 }
evaluate_every = 2
"""
