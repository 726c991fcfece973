"""``fedmuster partition``: who would have what."""

from pathlib import Path

from fedmuster.cli.display import console, show_table
from fedmuster.cli.summaries import paper, summary
from fedmuster.core.config import named, parse
from fedmuster.training.data import DATASETS
from fedmuster.training.partition import PARTITIONS, split


def list_partitions() -> None:
    """A table of all partitions."""
    rows = [(name, summary(kind), paper(kind)) for name, kind in PARTITIONS.items()]
    show_table("Partitions", ("name", "what it does", "paper"), rows, words=True)
    console.print(
        "Try: fedmuster partition --data digits --partition dirichlet-labels:alpha=0.3 "
        "--clients 30 --out who-has-what.png",
        soft_wrap=True,
    )


def show_partition(partition: str, data: str, num_clients: int, seed: int, out: Path) -> None:
    """Split a data set, say in a line what came of it, and draw it."""
    from fedmuster.report.figures import save
    from fedmuster.report.partition_figure import describe, partition_figure

    chosen = named(PARTITIONS, parse(partition), key=(), what="partition")
    loaded = named(DATASETS, parse(data), key=(), what="data set").load(seed)
    shares = split(chosen, loaded, num_clients, seed=seed)
    targets, classes = loaded.train_targets[shares.rows], loaded.num_classes
    line = describe(targets, shares.offsets, classes, shares.quality)
    console.print(line, highlight=False, soft_wrap=True)
    figure = partition_figure(
        targets,
        shares.offsets,
        num_classes=classes,
        quality=shares.quality,
        title=f"Who has what: {data}, {partition}, seed {seed}",
    )
    save(figure, out)
    console.print(f"wrote {out}", soft_wrap=True)
