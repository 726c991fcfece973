"""COCS, Fig. 4a, 7 and Table II: accuracy over edge aggregation rounds."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from fedmuster.claims import cocs_accuracy as findings
from fedmuster.claims.claim import Claim, Evidence, RunCells
from fedmuster.claims.cocs_accuracy import Accuracies
from fedmuster.claims.cocs_accuracy_pictures import accuracy_over_rounds
from fedmuster.claims.cocs_network import CUCB_, LINUCB, ORACLE, OURS, RANDOM
from fedmuster.claims.cocs_tasks import (
    CIFAR,
    CIFAR_FULL,
    EQUAL_PRICES,
    LOGISTIC,
    STANDARDISED,
    Task,
)

_MNIST_PAPER: Final[Mapping[str, str]] = {
    ORACLE: "71.90 %, 111",
    OURS: "71.84 %, 121",
    CUCB_: "70.94 %, 134",
    LINUCB: "71.66 %, 156",
    RANDOM: "70.81 %, 161",
}
_CIFAR_PAPER: Final[Mapping[str, str]] = {
    ORACLE: "68.41 %, 92",
    OURS: "67.93 %, 101",
    CUCB_: "63.76 %, 175",
    LINUCB: "65.19 %, 133",
    RANDOM: "62.25 %, 207",
}
_MNIST_TARGET, _CIFAR_TARGET = 0.7, 0.6


def _mnist(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    task, other = (one.quick() if quick else one for one in (LOGISTIC, STANDARDISED))
    slow = Accuracies.of(task.play(folder / "pixels", run), _MNIST_TARGET)
    fast = Accuracies.of(other.play(folder / "standardised", run))
    equal = Accuracies.of(
        task.play(folder / "equal-prices", run, price_per_mhz=EQUAL_PRICES), _MNIST_TARGET
    )
    return Evidence(
        setting=f"{task.describe()}; the same with a learning rate of {other.learning_rate:g}; and "
        f"with one price of {EQUAL_PRICES[0]:g} per MHz for all clients",
        findings=(
            findings.oracle_first(slow, "rounds"),
            findings.oracle_first(slow, "accuracy"),
            findings.near_oracle(slow),
            findings.ours_ahead(
                slow,
                "rounds",
                "COCS uses only 121 rounds for 70 %, 13, 35 and 40 fewer than the others",
            ),
            findings.ours_ahead(slow, "accuracy", "COCS outperforms the others in accuracy"),
            findings.random_last(slow),
            findings.ours_ahead(
                fast,
                "rounds",
                f"With a learning rate of {other.learning_rate:g} on standardised inputs, COCS is "
                f"sooner at {fast.target.text}",
                ours=True,
            ),
            findings.more_is_better(slow),
            findings.even_is_better(slow),
            findings.ours_ahead(
                equal,
                "accuracy",
                "With one price for all clients, COCS has more accuracy",
                ours=True,
            ),
            findings.more_is_better(equal)._replace(
                sentence="With one price for all clients, the more participants the more accuracy "
                "(tested in the same way)"
            ),
        ),
        tables=(
            findings.table(slow, "Accuracy and rounds, as Table II", _MNIST_PAPER),
            findings.table(fast, f"The same with a learning rate of {other.learning_rate:g}"),
            findings.table(equal, "The same with one price for all clients"),
        ),
        figures={
            "accuracy": accuracy_over_rounds(slow),
            "accuracy-standardised": accuracy_over_rounds(fast),
            "accuracy-equal-prices": accuracy_over_rounds(equal),
        },
        notes=(*_MNIST_NOTES, *_NOTES),
    )


_NOTES = (
    "After each round the mean of the three edge models is evaluated, which is the global model "
    "in every fifth.",
    "Who is late is dropped (Z = 0 in rule 6), so that those train whom the utility counts. The "
    "paper has no Z, and supposes that so many are always in time; with Z = 1 many rounds would "
    "end with one late answer, some of them after many minutes.",
)
_MNIST_NOTES = (
    "The paper does not state the batch size, and Eq. 2 has E steps where it says E epochs: here a "
    "batch is all that a client has. Nor does it say how inputs are scaled. Here they are "
    "standardised, where a learning rate of 0.005 · 0.308² = 0.00047 is about 0.005 for pixels in "
    "[0, 1]. Of batches of 20 or of everything, and of either learning rate, this was chosen after "
    "trials of Random with other seeds (1000 to 1002), as the one in which it comes closest to the "
    "161 rounds that the paper has (108, 82 and more than 200); with the other three it was at 70 "
    "% after 12 to 28.",
    "The text of the paper has COCS 36 rounds ahead of CUCB and 13 of LinUCB, its Table II the "
    "other way round, and 35.",
    f'"Similar" was put at {findings.SIMILAR:g} points of accuracy before the first run, tested by '
    "two one-sided tests at 5 %.",
    "Rounds with standardised inputs are counted to what Random comes to in every seed.",
    "The utility counts participants, and not what they know. Prices are drawn once a run, and the "
    "most participants for a budget are the cheapest, so whoever maximises the utility goes on "
    "choosing the same few, and some labels are hardly ever seen. One price for all, and the "
    "sentences on evenness, were added after this had been seen in trials (seeds 1000 and 1001).",
)


def _cifar(folder: Path, *, quick: bool, run: RunCells, task: Task) -> Evidence:
    whole = task is CIFAR_FULL and not quick
    reduced = () if whole else _REDUCED
    if quick:
        task = task.quick()
    accuracies = Accuracies.of(task.play(folder, run), _CIFAR_TARGET if whole else None)
    return Evidence(
        setting=f"square-root utility, Oracle and COCS with FLGreedy; {task.describe()}",
        findings=(
            findings.oracle_first(accuracies, "accuracy"),
            findings.ours_ahead(
                accuracies,
                "accuracy",
                "COCS has more accuracy than the others (by 4.17, 2.74 and 5.68 points)",
            ),
            findings.ours_ahead(
                accuracies,
                "rounds",
                f"COCS also converges sooner: fewer rounds to {accuracies.target.text}",
            ),
            findings.more_is_better(accuracies),
            findings.even_is_better(accuracies),
        ),
        tables=(findings.table(accuracies, "Accuracy and rounds, as Table II", _CIFAR_PAPER),),
        figures={"accuracy": accuracy_over_rounds(accuracies)},
        notes=(*reduced, *_CIFAR_NOTES, *_NOTES),
    )


_REDUCED = (
    "The paper trains a CNN over as many as 1,880 rounds. An MLP on 20,000 of the 50,000 images "
    "stands for it, which does not come to 60 %: rounds are counted to what Random comes to in "
    "every seed. The network is the paper's: 18.7 Mbit to send and 28.3 Mbyte to compute. "
    "cocs-cifar-full is the whole.",
)
_CIFAR_NOTES = (
    "The text of the paper names 4.17, 1.74 and 5.68 points ahead of LinUCB, CUCB and Random; by "
    "its Table II it is 2.74, 4.17 and 5.68.",
)

MNIST = Claim(
    name="cocs-mnist",
    source="COCS, Fig. 4a, Table II",
    statement="Oracle converges fastest and to the highest accuracy; COCS achieves a similar one, "
    "and is at 70 % 13 to 40 rounds sooner than CUCB, LinUCB and Random.",
    gather=_mnist,
)


def _cifar_claim(name: str, source: str, task: Task, *, heavy: bool = False) -> Claim:
    return Claim(
        name=name,
        source=f"COCS, {source}",
        statement="Oracle has the best performance; COCS is 2.7 to 5.7 points above CUCB, LinUCB "
        "and Random, and converges sooner.",
        gather=partial(_cifar, task=task),
        heavy=heavy,
    )


TRAINING = (
    MNIST,
    _cifar_claim("cocs-cifar", "Fig. 7, Table II, reduced", CIFAR),
    _cifar_claim("cocs-cifar-full", "Fig. 7, Table II", CIFAR_FULL, heavy=True),
)
