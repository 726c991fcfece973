"""Pisces in its authors' setting on MNIST: guided without rounds, against Oort and FedBuff."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play, seeds
from claims.measures import in_percent, model_text, number
from claims.racing.contestant import Contestant, experiment_of
from claims.racing.milestone_table import milestone_table
from claims.racing.milestones import Milestones, Runs, end_level
from claims.roundless.contestants import AS_PUBLISHED, IN_ROUNDS, OORT_ROUNDS, PISCES, RANDOM
from claims.roundless.figures import draw_accuracies
from claims.roundless.published_pisces import LeNet5, OwnMixtures
from fedmuster import BSFL, FedBuff, Oort, Pisces, Random
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation
from fedmuster.report.statistics import interval, paired
from fedmuster.report.tables import Table
from fedmuster.training.aggregation import Aggregation, FedAvg, ModelMixing
from fedmuster.training.data import MNIST, Data, Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, Model
from fedmuster.training.training import Training
from fedmuster.worlds import Fixed, LatencyWorld

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEDBUFF: Final = "fedbuff, buffer 4"
BSFL_4: Final = "bsfl, buffer 4"
_BUFFER = Federation(buffer=4)
_CONCURRENCY = 20
_MOST_LOST_POINTS = 0.5
MIXED: Final = ModelMixing(mixing=1.0)
"""As in the authors' code: the server mixes the models of clients into its own."""
ADDED: Final = FedAvg()
"""As in FedBuff's paper: the server adds what clients have changed."""
_PAPER: Final = {OORT_ROUNDS: 2.0, FEDBUFF: 1.9}
"""How many times faster Pisces is at most, by the paper."""

CONTESTANTS: Final = (
    Contestant(label=RANDOM, policy=Random(), federation=IN_ROUNDS),
    # As the authors ran it.
    Contestant(
        label=OORT_ROUNDS,
        policy=Oort(exploration_floor=0.3, cut_off=0.05, clip=0.9),
        federation=IN_ROUNDS,
    ),
    Contestant(label=FEDBUFF, policy=FedBuff(), federation=_BUFFER),
    Contestant(label=PISCES, policy=Pisces(), federation=AS_PUBLISHED),
    Contestant(label=BSFL_4, policy=BSFL(), federation=_BUFFER),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedSetting:
    """The authors' experiment on MNIST, or a smaller one like it.

    Args:
        data: what is learned.
        model: which model.
        samples: of each client.
        num_clients: K.
        seconds: of simulated time.
        num_seeds: how many.
        learning_rate: of the clients.
        server: what becomes of answers.
    """

    data: Data
    model: Model
    samples: int = 500
    num_clients: int = 200
    seconds: float = 1015.0
    num_seeds: int = 5
    learning_rate: float = 0.01
    server: Aggregation = MIXED

    @property
    def local(self) -> LocalSGD:
        """What a client does in a job."""
        rate = self.learning_rate
        return LocalSGD(learning_rate=rate, momentum=0.9, batch_size=32, epochs=5)

    def experiment(self) -> Experiment:
        """All contestants."""
        return experiment_of(
            CONTESTANTS,
            world=LatencyWorld(
                num_clients=self.num_clients,
                cohort_size=_CONCURRENCY,
                fastest_seconds=15.0,
                slowest_seconds=180.0,
                spacing="zipf",
                exponent=1.2,
                distribution=Fixed(),
                tau_min_seconds=10.0,
            ),
            training=Training(
                data=self.data,
                partition=OwnMixtures(samples=self.samples),
                model=self.model,
                local=self.local,
                server=self.server,
            ),
            seconds=self.seconds,
            seeds=seeds(self.num_seeds),
            concurrency=_CONCURRENCY,
        )

    def quick(self) -> "PublishedSetting":
        """A short one that needs no download."""
        return replace(
            self,
            data=Digits(test_limit=200),
            model=MLP(hidden=(16,)),
            samples=32,
            num_clients=40,
            seconds=400.0,
            num_seeds=2,
            learning_rate=0.1,
        )

    def describe(self) -> str:
        """The setting in words, for the page."""
        return (
            f"{self.data.name}, {self.num_clients} clients with {self.samples} samples each, drawn "
            f"by a mixture of labels of its own, Dirichlet(1); {model_text(self.model)}; "
            f"{self.local.epochs} epochs in batches of {self.local.batch_size} a job, learning "
            f"rate {self.learning_rate:g}, momentum {self.local.momentum:g}; "
            f"{_CONCURRENCY} clients train at any time; a job takes from 15 to 180 s, by Zipf's "
            "law with the exponent 1.2 and always equally long for a client, so that most take "
            f"little more than 15 s; {self.seconds:,.0f} s, {self.num_seeds} seeds"
        )


def sooner_than(milestones: Milestones, rival: str) -> Finding:
    """Pisces against a rival, with the paper's speed-up beside ours."""
    return Finding(
        sentence=f"Pisces comes to the level sooner than {rival} (significantly; the paper: up to "
        f"{_PAPER[rival]:.1f} times as fast, over its four data sets)",
        measured=_seconds_text(milestones, (PISCES, rival))
        + f"; {speed_up_text(milestones, rival)} as fast",
        holds=_sooner(milestones, PISCES, rival),
    )


def ends_not_lower(milestones: Milestones) -> Finding:
    """The end of Pisces beside that of FedBuff."""
    difference = 100 * (milestones.ends(PISCES) - milestones.ends(FEDBUFF))
    return Finding(
        sentence=f"Pisces does not end more than {_MOST_LOST_POINTS:g} points below FedBuff",
        measured=f"{number(interval(difference), 2)} points",
        holds=float(difference.mean()) >= -_MOST_LOST_POINTS,
        ours=True,
    )


def leaving_rounds(milestones: Milestones) -> Finding:
    """What is gained without any guidance."""
    return Finding(
        sentence="Leaving rounds alone is enough to be sooner than Oort in rounds: FedBuff is "
        "(significantly)",
        measured=_seconds_text(milestones, (FEDBUFF, OORT_ROUNDS)),
        holds=_sooner(milestones, FEDBUFF, OORT_ROUNDS),
        ours=True,
    )


def guided_otherwise(milestones: Milestones) -> Finding:
    """A policy that was written for rounds, without them."""
    return Finding(
        sentence="Pisces is sooner than BSFL without rounds (significantly)",
        measured=_seconds_text(milestones, (PISCES, BSFL_4)),
        holds=_sooner(milestones, PISCES, BSFL_4),
        ours=True,
    )


def with_added_updates(added: Milestones) -> Finding:
    """The first sentence with the other server."""
    without = (PISCES, FEDBUFF, BSFL_4)
    ends = (f"{label} {in_percent(interval(added.ends(label)))} %" for label in added.runs)
    return Finding(
        sentence="It does not matter what becomes of old answers: where updates are added to the "
        "model, as in FedBuff's paper, and models are not mixed, as in the authors' code, Pisces, "
        "FedBuff and BSFL without rounds are sooner than Oort in rounds, too (significantly)",
        measured=_seconds_text(added, (*without, OORT_ROUNDS)) + "; in the end " + ", ".join(ends),
        holds=all(_sooner(added, label, OORT_ROUNDS) for label in without),
        ours=True,
    )


def findings(mixed: Milestones, added: Milestones) -> tuple[Finding, ...]:
    """All sentences: the paper's first."""
    return (
        *(sooner_than(mixed, rival) for rival in _PAPER),
        leaving_rounds(mixed),
        guided_otherwise(mixed),
        ends_not_lower(mixed),
        with_added_updates(added),
    )


def speed_up_text(milestones: Milestones, rival: str) -> str:
    """How many times as fast as a rival Pisces is at the level."""
    times = milestones.shares(rival, PISCES)
    return f"{number(interval(times), 2)} times" if np.isfinite(times).all() else "–"


def _sooner(milestones: Milestones, label: str, rival: str) -> bool:
    seconds = milestones.seconds(label)
    if not np.isfinite(seconds).all():
        return False
    late = np.minimum(milestones.seconds(rival), milestones.horizon_seconds)
    return paired(seconds, late).verdict == "lower"


def _seconds_text(milestones: Milestones, labels: Sequence[str]) -> str:
    return ", ".join(f"{label} {_time_text(milestones.seconds(label))}" for label in labels)


def _time_text(seconds: FloatArray) -> str:
    reached = np.isfinite(seconds)
    if not reached.all():
        return f"in {reached.sum()} of {len(seconds)} seeds"
    return f"{number(interval(seconds), 0)} s"


def _gather(folder: Path, *, quick: bool, run: RunCells, setting: PublishedSetting) -> Evidence:
    if quick:
        setting = setting.quick()
    mixed = play(setting.experiment(), folder / "mixed", run).runs
    added = play(replace(setting, server=ADDED).experiment(), folder / "added", run).runs

    def at_the_end_of(label: str, runs: Runs) -> Milestones:
        levels = np.array([end_level(own) for own in runs[label]])
        return Milestones(runs=runs, levels=levels, horizon_seconds=setting.seconds)

    main, higher = at_the_end_of(RANDOM, mixed), at_the_end_of(OORT_ROUNDS, mixed)
    other = at_the_end_of(RANDOM, added)
    rates = dict.fromkeys(mixed, setting.learning_rate)
    panels = {_MIXED_TEXT: main, _ADDED_TEXT: other}
    return Evidence(
        setting=setting.describe(),
        findings=findings(main, other),
        tables=(
            _speed_ups(main, higher),
            *(
                milestone_table(own, f"The end, and the way to the level: {text}", rates)
                for text, own in panels.items()
            ),
        ),
        figures={"accuracy": accuracy_figure(panels)},
        notes=(*_NOTES, _other_model(setting.model)),
    )


_MIXED_TEXT = "models are mixed (authors' code)"
_ADDED_TEXT = "updates are added (FedBuff's paper)"


def _speed_ups(milestones: Milestones, higher: Milestones) -> Table:
    rivals = [contestant.label for contestant in CONTESTANTS if contestant.label != PISCES]
    return Table(
        title="How many times as fast as each rival Pisces is",
        columns=(
            *("rival", "paper, at most", f"at the end of {RANDOM}"),
            f"at the end of {OORT_ROUNDS}",
        ),
        rows=tuple(
            (
                rival,
                f"{_PAPER[rival]:.1f} times" if rival in _PAPER else "–",
                speed_up_text(milestones, rival),
                speed_up_text(higher, rival),
            )
            for rival in rivals
        ),
        footnotes=(
            "Means over the seeds of the ratio of times, ± half-width of the 95 % Student-t "
            "interval; – where a seed does not come to the level.",
        ),
    )


def accuracy_figure(panels: Mapping[str, Milestones]) -> "Figure":
    """The smoothed accuracy of all contestants, mean over seeds; a panel for each server."""
    import matplotlib
    from matplotlib.figure import Figure

    from fedmuster.report.figures import style

    labels = [contestant.label for contestant in CONTESTANTS]
    (count,) = {len(own.levels) for own in panels.values()}
    with matplotlib.rc_context(style.STYLE):
        figure = Figure(figsize=(style.WIDTH, 3.6), layout="constrained")
        figure.suptitle(
            f"Test accuracy over simulated time in Pisces' setting – mean of {count} seeds",
            x=0.01,
            ha="left",
        )
        drawn = figure.subplots(1, len(panels))
        for axes, (title, own) in zip(drawn, panels.items(), strict=True):
            handles = draw_accuracies(axes, own, labels)
            axes.set_title(title)
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        return figure


_NOTES = (
    "The level is the accuracy at which random choice in rounds ends, in each seed its own; a "
    "contestant is there when its accuracy, averaged over the last 3 % of the time, is. The paper "
    "measures the time to a fixed accuracy.",
    "Latencies, data, local training and the time are those of the authors' published "
    "configurations; so are FedBuff's buffer, a fifth of the concurrency, and Oort's parameters. "
    "Everybody has the published learning rate: what each would gain by its own is not asked here.",
    "The authors' server decides every five seconds; here it decides at once. It mixes models: an "
    "answer of age s moves the model by (1 + s)^-0.5 of the way to the client's. FedBuff's paper "
    "adds what the client has changed, which was tried first here, and is shown beside it.",
)


def _other_model(model: Model) -> str:
    if isinstance(model, LeNet5):
        return "The network is the paper's, LeNet-5."
    return (
        "The paper trains LeNet-5, which takes a quarter of an hour a seed on a small machine; an "
        "MLP stands for it. pisces-published-setting-full is the whole, and was not run."
    )


def _claim(name: str, setting: PublishedSetting, *, heavy: bool = False) -> Claim:
    return Claim(
        name=name,
        source="Pisces, Fig. 7–9 on MNIST" + ("" if heavy else ", with an MLP"),
        statement="Pisces accelerates the time to accuracy by up to 2.0 times against Oort and 1.9 "
        "times against FedBuff.",
        gather=partial(_gather, setting=setting),
        heavy=heavy,
    )


_REDUCED = PublishedSetting(data=MNIST(test_limit=2000), model=MLP())
CLAIMS: Final = (
    _claim("pisces-published-setting", _REDUCED),
    _claim(
        "pisces-published-setting-full", replace(_REDUCED, data=MNIST(), model=LeNet5()), heavy=True
    ),
)
