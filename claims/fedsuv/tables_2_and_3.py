"""FedSUV, Tables 2 and 3: rounds to accuracy and final accuracy against four others."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play
from claims.fedsuv.device_tasks import (
    AUDIO,
    CIFAR,
    CIFAR_FULL,
    FASHION,
    FEDAVG,
    FEDSUV,
    SERVERS,
    WRITERS,
    DeviceTask,
)
from claims.measures import (
    beaten,
    different_clients,
    each,
    names,
    number,
    reached_text,
    rounds_to,
    settled,
)
from fedmuster.core.records import FloatArray
from fedmuster.policies.fedsuv.candidates import DOMINATED, ELIMINATED
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import interval, paired
from fedmuster.report.tables import Table
from fedmuster.report.target import Target, find_target

_MOST_CHOSEN = 20


def final_percents(comparison: Comparison) -> dict[str, FloatArray]:
    """Accuracy in the last tenth of the time."""
    return each(comparison, lambda run: 100 * settled(run, "accuracy"))


def fewest_rounds(comparison: Comparison, target: Target, server: str) -> Finding:
    """Table 2."""
    rounds = each(comparison, lambda run: rounds_to(target, run))
    rivals = [label for label in rounds if label != FEDSUV]
    in_time = [label for label in rivals if not np.isnan(rounds[label]).any()]
    reached = not np.isnan(rounds[FEDSUV]).any()
    slower = beaten(rounds, FEDSUV, in_time, "lower") if reached else []
    return Finding(
        sentence=f"With {server}, FedSUV significantly improves round-to-accuracy: it is at what "
        f"FedAvg comes to in every seed ({target.text}) in fewer rounds than each of the others "
        "(significantly, or they are not in every seed)",
        measured=", ".join(f"{label} {_rounds_text(own)}" for label, own in rounds.items())
        + f"; significantly fewer than {names(slower)}",
        holds=reached and slower == in_time,
    )


def highest_accuracy(comparison: Comparison, server: str) -> Finding:
    """Table 3."""
    ends = final_percents(comparison)
    rivals = [label for label in ends if label != FEDSUV]
    return Finding(
        sentence=f"With {server}, FedSUV enhances final accuracy (tested as: it has the highest, on"
        " average over seeds)",
        measured=", ".join(f"{label} {number(interval(own), 2)} %" for label, own in ends.items())
        + f"; significantly higher than {names(beaten(ends, FEDSUV, rivals, 'higher'))}, "
        + f"significantly lower than {names(beaten(ends, FEDSUV, rivals, 'lower'))}",
        holds=all(bool(ends[FEDSUV].mean() > ends[label].mean()) for label in rivals),
    )


def more_answers(comparison: Comparison) -> Finding:
    """What eliminating for validity is there for."""
    shares = each(comparison, answered_share)
    difference = paired(shares[FEDSUV], shares[FEDAVG])
    return Finding(
        sentence="FedSUV's clients answer in time more often than FedAvg's (significantly)",
        measured=", ".join(f"{label} {own.mean():.0%}" for label, own in shares.items())
        + " of the asked",
        holds=difference.verdict == "higher",
        ours=True,
    )


def less_data(comparison: Comparison) -> Finding:
    """What choosing the same clients again and again costs."""
    shares = each(comparison, data_share)
    difference = paired(shares[FEDSUV], shares[FEDAVG])
    counts = each(comparison, different_clients)
    return Finding(
        sentence="FedSUV chooses the owners of less data than FedAvg (significantly)",
        measured=", ".join(
            f"{label} {own.mean():.0%} ({counts[label].mean():,.0f} clients)"
            for label, own in shares.items()
        ),
        holds=difference.verdict == "lower",
        ours=True,
    )


def answered_share(run: Run) -> float:
    """The share of the asked clients that answered in time."""
    return float(run.columns["num_completed"].sum() / run.cohort_sizes.sum())


def data_share(run: Run) -> float:
    """How much of all data belongs to clients that were chosen at least once."""
    ever = run.selection_counts() > 0
    if run.num_samples is None:
        return float(ever.mean())
    return float(run.num_samples[ever].sum() / run.num_samples.sum())


def most_chosen_share(run: Run) -> float:
    """How many of the choices went to the 20 clients who were chosen most often."""
    counts = run.selection_counts()
    return float(np.sort(counts)[-_MOST_CHOSEN:].sum() / counts.sum())


def chosen_validity(run: Run) -> float:
    """The mean probability of a reply in time over all selections."""
    assert run.validity is not None
    return float(np.average(run.validity, weights=run.selection_counts()))


def _rounds_text(values: FloatArray) -> str:
    return reached_text(values, "{:.0f}")


_FIRST = next(iter(SERVERS))


def _gather(folder: Path, *, quick: bool, run: RunCells, task: DeviceTask) -> Evidence:
    from fedmuster.report import figures

    if quick:
        task = task.quick()
    by_server = {
        name: play(task.experiment(server), folder / name, run) for name, server in SERVERS.items()
    }
    targets = {name: find_target(one, FEDAVG) for name, one in by_server.items()}
    return Evidence(
        setting=task.describe(),
        findings=(
            *(fewest_rounds(one, targets[name], name) for name, one in by_server.items()),
            *(highest_accuracy(one, name) for name, one in by_server.items()),
            more_answers(by_server[_FIRST]),
            less_data(by_server[_FIRST]),
        ),
        tables=(
            _rounds_table(by_server, targets),
            _accuracy_table(by_server),
            _choices_table(by_server[_FIRST]),
        ),
        figures={
            **{
                f"accuracy-{name}": figures.accuracy(one, targets[name])
                for name, one in by_server.items()
            },
            "candidates": figures.elimination(by_server[_FIRST]),
        },
        notes=(*task.notes, _candidates_note(by_server[_FIRST]), *_NOTES),
    )


_NOTES = (
    "SAFA has everybody train who is there and not still busy, two to three times as many as the "
    "others, and averages the last models of all clients, of whom it has not heard of many at "
    "first; rounds to accuracy do not show what that costs or gains.",
    "REFL is told by clients whether they will be there soon, right in 90 % of cases, and late "
    "answers count in it, as they do in SAFA; the others throw them away.",
    "What a policy ends with is the mean of the evaluations in the last tenth of its time, ± the "
    "half-width of the 95 % Student-t interval over the seeds.",
)


def _candidates_note(comparison: Comparison) -> str:
    """What had become of FedSUV's candidates and of its idea of utility in the end."""
    shares, losses = [], []
    for run in comparison.runs[FEDSUV]:
        assert run.scores is not None
        left_by = run.scores.values["left_by"][-1]
        shares.append([np.mean(left_by == why) for why in (0, ELIMINATED, DOMINATED)])
        tenth = math.ceil(run.rounds / 10)
        loss = run.columns["train_loss"]
        losses.append([np.nanmean(loss[:tenth]), np.nanmean(loss[-tenth:])])
    remain, eliminated, dominated = np.mean(shares, axis=0)
    early, late = np.mean(losses, axis=0)
    return (
        f"In the end {remain:.0%} of the clients are FedSUV's candidates; {eliminated:.0%} were "
        f"eliminated for their validity and {dominated:.0%} were dominated, and are asked only "
        "where too few candidates are there. And utility is not fixed, as section 3 supposes: the "
        f"loss of the cohorts, a factor of it (Eq. 3), falls from {early:.2f} in the first tenth of"
        f" the rounds to {late:.2f} in the last, so who was asked late seems to be worth less than "
        "an equal client that was asked early, and bounds of the past, which boxes keep (Eq. 8), "
        "are of a utility that is no more."
    )


def _rounds_table(by_server: Mapping[str, Comparison], targets: Mapping[str, Target]) -> Table:
    columns: list[str] = ["policy"]
    cells: dict[str, list[str]] = {label: [] for label in by_server[_FIRST].labels}
    for name, comparison in by_server.items():
        target = targets[name]
        columns += [f"{name}: rounds to {target.text}", "speed-up"]
        rounds = each(comparison, partial(rounds_to, target))
        for label, own in rounds.items():
            cells[label] += [_rounds_text(own), _speed_up(own, rounds[FEDAVG], label)]
    return Table(
        title="Rounds to accuracy, as Table 2",
        columns=tuple(columns),
        rows=tuple((label, *own) for label, own in cells.items()),
        footnotes=(
            "The target is what FedAvg comes to in every seed, in whole per cent. Speed-up: of "
            "mean rounds, against FedAvg; – where a seed does not get there.",
        ),
    )


def _speed_up(own: FloatArray, base: FloatArray, label: str) -> str:
    if label == FEDAVG or np.isnan(own).any():
        return "–"
    return f"{base.mean() / own.mean():.2f}×"


def _accuracy_table(by_server: Mapping[str, Comparison]) -> Table:
    ends = {name: final_percents(one) for name, one in by_server.items()}
    return Table(
        title="Test accuracy in the end (%), as Table 3",
        columns=("policy", *ends),
        rows=tuple(
            (label, *(number(interval(own[label]), 2) for own in ends.values()))
            for label in by_server[_FIRST].labels
        ),
        footnotes=(),
    )


_MEASURED: Mapping[str, tuple[Callable[[Run], float], str]] = {
    "mean validity": (chosen_validity, "{:.2f}"),
    "asked a round": (lambda run: float(run.cohort_sizes.mean()), "{:.1f}"),
    "answers a round": (lambda run: float(run.columns["num_completed"].mean()), "{:.1f}"),
    "different clients": (different_clients, "{:,.0f}"),
    "their share of all data": (data_share, "{:.0%}"),
    "choices of the 20 chosen most": (most_chosen_share, "{:.0%}"),
    "seconds a round": (lambda run: float(run.columns["seconds"].mean()), "{:.0f}"),
}


def _choices_table(comparison: Comparison) -> Table:
    rows = []
    for label, runs in comparison.runs.items():
        means = (form.format(np.mean([of(run) for run in runs])) for of, form in _MEASURED.values())
        rows.append((label, *means))
    return Table(
        title=f"Who was chosen, with {_FIRST}",
        columns=("policy", *_MEASURED),
        rows=tuple(rows),
        footnotes=("Means over the seeds.",),
    )


def _claim(name: str, where: str, task: DeviceTask, *, heavy: bool = False) -> Claim:
    return Claim(
        name=name,
        source=f"FedSUV, Tables 2 and 3: {where}",
        statement="FedSUV significantly improves round-to-accuracy compared to other methods, and "
        "consistently enhances final model accuracy, with averaging and with YoGi.",
        gather=partial(_gather, task=task),
        heavy=heavy,
    )


TABLES = (
    _claim("fedsuv-cifar", "CIFAR-10, reduced", CIFAR),
    _claim("fedsuv-fashion", "Fashion-MNIST for CIFAR-100, reduced", FASHION),
    _claim("fedsuv-writers", "MNIST by writer for FEMNIST, reduced", WRITERS),
    _claim("fedsuv-audio", "AudioMNIST for Google Speech, reduced", AUDIO),
    _claim("fedsuv-cifar-full", "CIFAR-10 with ResNet-18", CIFAR_FULL, heavy=True),
)
