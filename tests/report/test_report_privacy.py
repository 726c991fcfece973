"""Reports on private runs: real ones, with real ledgers, whose spending follows from cohorts."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.axes import Axes

from fedmuster import PAUSE, AllClients, Random
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray
from fedmuster.experiments.run import execute
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE
from fedmuster.privacy.mechanisms import Gaussian, Laplace
from fedmuster.privacy.schedules import Uniform
from fedmuster.report import figures
from fedmuster.report.curves import Axis, evaluations
from fedmuster.report.page import to_html
from fedmuster.report.page_data import page_data
from fedmuster.report.promise import in_words, statement
from fedmuster.report.runs import Comparison, Run, load
from fedmuster.report.summary import summarise
from fedmuster.report.tables import Table, tables, to_csv
from fedmuster.report.write import write_report
from fedmuster.training.models import MLP
from fedmuster.training.training import Training
from fedmuster.worlds import PauseGroups

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

ROUNDS, TURNS, CAP = 16, 6, 30.0
PARAMETERS = 64 * 4 + 4 + 4 * 10 + 10  # of an MLP with 4 hidden units on 8 x 8 pixels
PRIVACY = Privacy(
    epsilon=CAP,
    schedule=Uniform(participations=TURNS),
    mechanism=Laplace(mode="per-coordinate", clip=0.01),
)
SIMULATED = "privacy: simulated (seeded noise protects nobody)"


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    """Whoever is asked for the sixth time is exhausted: all-clients is over after 6 rounds."""
    return Experiment(
        policies={
            "pause": PAUSE(),
            "random": Random(),
            "all-clients": AllClients(),
            "open": Random(),
        },
        world=PauseGroups(num_clients=12, cohort_size=2),
        rounds=ROUNDS,
        seeds=(0, 1),
        regret=False,
        training=Training(model=MLP(hidden=(4,)), evaluate_every=2),
        privacy=PRIVACY,
        unprotected=frozenset(["open"]),
    )


@pytest.fixture(scope="module")
def folder(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("private") / "runs"
    for cell in lay_out(out, experiment):
        execute(cell)
    return out


@pytest.fixture
def comparison(folder: Path) -> Comparison:
    return load([folder])


def _spent(run: Run) -> FloatArray:
    """[rounds, K], from who was asked alone: each time costs a sixth of the cap."""
    asked = np.zeros((run.rounds, run.num_clients))
    asked[run.chosen_rounds(), run.chosen] = 1
    return np.cumsum(asked, axis=0) * CAP / TURNS


def test_a_run_that_privacy_ended_cuts_nobody_else(comparison: Comparison) -> None:
    rounds = {label: {run.rounds for run in runs} for label, runs in comparison.runs.items()}
    assert rounds == {"pause": {16}, "random": {16}, "all-clients": {6}, "open": {16}}
    assert (comparison.rounds, comparison.most_rounds) == (6, 16)
    assert comparison.length == "up to 16 rounds"
    assert comparison.uneven
    assert not comparison.by_time
    ended, simulated = comparison.notes
    assert ended == (
        "2 of 8 runs ended early: all-clients after 6 rounds. all-clients, seed 0: privacy ends "
        "the run: 0 of 12 clients have budget left, fewer than a cohort of 2."
    )
    assert simulated == f"{SIMULATED}; none for open"
    assert comparison.protected == ("pause", "random", "all-clients")


def test_what_was_spent_follows_from_who_was_asked(comparison: Comparison) -> None:
    for label in comparison.protected:
        for run in comparison.runs[label]:
            spent = _spent(run)
            np.testing.assert_allclose(run.columns["spent_max"], spent.max(axis=1), atol=1e-7)
            np.testing.assert_allclose(run.columns["spent_mean"], spent.mean(axis=1), atol=1e-7)
            exhausted = np.count_nonzero(spent > CAP - 1, axis=1)
            np.testing.assert_array_equal(run.columns["num_exhausted"], exhausted)
            assert run.num_parameters == PARAMETERS


def _lines(axes: Axes) -> dict[str, tuple[FloatArray, FloatArray]]:
    return {
        str(line.get_label()): (
            np.asarray(line.get_xdata(), dtype=float),
            np.asarray(line.get_ydata(), dtype=float),
        )
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
    }


def test_leakage_is_drawn_with_its_cap(comparison: Comparison) -> None:
    figure = figures.leakage(comparison)
    assert [axes.get_ylabel() for axes in figure.axes[::2]] == [
        "largest ε per coordinate spent by a client",
        "mean ε per coordinate spent by a client",
    ]
    assert [axes.get_xlabel() for axes in figure.axes[2:]] == ["simulated time (s)", "round"]
    for axes, largest in zip(figure.axes, (True, True, False, False), strict=True):
        assert _lines(axes).keys() == {"pause", "random", "all-clients"}
        (cap,) = (line for line in axes.lines if str(line.get_label()).startswith("_"))
        assert set(np.asarray(cap.get_ydata(), dtype=float)) == {CAP}
        assert [text.get_text() for text in axes.texts] == ["cap ε = 30 per coordinate"]
        assert axes.get_ylim() == pytest.approx((0, 1.1 * CAP))
        if axes in figure.axes[1::2]:
            for label, (x, y) in _lines(axes).items():
                spent = np.stack([_spent(run) for run in comparison.runs[label]])
                of_runs = spent.max(axis=2) if largest else spent.mean(axis=2)
                np.testing.assert_array_equal(x, np.arange(1, len(y) + 1))
                np.testing.assert_allclose(y, of_runs.mean(axis=0), atol=1e-7)
    (legend,) = figure.legends
    assert "open" not in [text.get_text() for text in legend.get_texts()]
    assert f"{SIMULATED}; none for open" in figure.get_suptitle()


def test_a_cap_far_away_does_not_press_the_curves_flat(write_run: "WriteRun") -> None:
    runs = [write_run(spent=[0.01, 0.02, 0.03], privacy=Privacy(epsilon=4.0))]
    axes = figures.leakage(load(runs)).axes[0]
    assert axes.get_ylim()[1] < 0.04
    assert [text.get_text() for text in axes.texts] == ["cap ε = 4 ↑"]


def test_curves_upon_each_other_can_both_be_seen(write_run: "WriteRun") -> None:
    labels = ("bsfl", "random", "pause")
    spent = ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 1.0, 2.0])
    runs = [
        write_run(label, spent=own, privacy=PRIVACY)
        for label, own in zip(labels, spent, strict=True)
    ]
    axes = figures.leakage(load(runs)).axes[1]
    widths = [line.get_linewidth() for line in axes.lines[:3]]
    assert widths[0] > widths[1] == widths[2]


def test_accuracy_for_the_privacy_it_cost_by_hand(write_run: "WriteRun") -> None:
    runs = [
        write_run(
            seed=seed, loss=[1.0] * 3, accuracy=accuracy, spent=spent, privacy=Privacy(epsilon=9.0)
        )
        for seed, accuracy, spent in (
            (0, [0.2, 0.4, 0.6], [1.0, 1.0, 4.0]),
            (1, [0.4, 0.6, 0.8], [1.0, 2.0, 3.0]),
        )
    ]
    open_one = [
        write_run("open", seed, loss=[1.0] * 3, accuracy=[0.9] * 3, privacy=Privacy(epsilon=9.0))
        for seed in (0, 1)
    ]
    comparison = load([*runs, *open_one])
    (curve,) = evaluations(comparison, "accuracy", "spent_max")
    np.testing.assert_array_equal(curve.x, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(curve.mean, [0.4, 0.5, 0.6, 0.7])
    assert np.isnan(curve.half_width).tolist() == [False, False, False, True]
    (axes,) = figures.privacy_utility(comparison).axes
    assert _lines(axes).keys() == {"bsfl"}
    assert axes.get_xlabel() == "largest ε spent by a client"


def test_the_overview_shows_leakage(comparison: Comparison) -> None:
    titles = [axes.get_title(loc="left") for axes in figures.overview(comparison).axes]
    assert "Test accuracy against simulated time" in titles
    assert "Privacy spent against simulated time" in titles


def _privacy_tables(comparison: Comparison) -> list[Table]:
    shown = tables(summarise(comparison))
    assert all(any(SIMULATED in note for note in table.footnotes) for table in (shown[2], shown[5]))
    return [table for table in shown if "rivacy" in table.title]


def test_tables_tell_what_it_cost(comparison: Comparison) -> None:
    means, differences = _privacy_tables(comparison)
    assert (
        means.title == "What it cost in privacy: up to 16 rounds, 2 seeds, 2 of 12 clients a round"
    )
    assert means.columns == (
        "Policy",
        "Largest ε per coordinate spent",
        "Mean ε per coordinate spent",
        "As ε of whole updates",
        "Clients exhausted",
    )
    rows = {label: cells for label, *cells in means.rows}
    assert rows["all-clients"] == ["30.000 ± 0", "30.000 ± 0", "9,300.0 ± 0", "12.000 ± 0"]
    assert rows["open"] == ["–"] * 4
    assert f"{30 * PARAMETERS:,}" == "9,300"
    assert means.footnotes[1:] == (
        "Each coordinate of an update is clipped to ±0.01 and gets Laplace noise.",
        "Whoever is asked pays, also without an answer, by the uniform schedule "
        "(participations = 6); no client ever spends more than the cap.",
        "The cap: Laplace per coordinate: ε = 30 of each coordinate is ε = 9,300 of the update.",
    )
    assert differences.columns[-1] == "Clients exhausted"
    assert [row[0] for row in differences.rows] == ["pause", "all-clients", "open"]
    assert differences.rows[2][1:] == ("–", "–", "–")


def test_numbers_of_privacy_by_hand(comparison: Comparison) -> None:
    summary = summarise(comparison)
    for policy in summary.policies[:3]:
        runs = comparison.runs[policy.label]
        largest = [float(_spent(run)[-1].max()) for run in runs]
        np.testing.assert_allclose(policy.values["spent_max_at_end"], largest)
        np.testing.assert_allclose(
            policy.values["whole_update_epsilon_at_end"], np.array(largest) * PARAMETERS
        )
    random, everyone = (
        [_spent(run)[-1].mean() for run in comparison.runs[label]]
        for label in ("random", "all-clients")
    )
    difference = summary.policies[2].differences["spent_mean_at_end"]
    assert difference.interval.mean == pytest.approx(np.mean(everyone) - np.mean(random))
    assert difference.verdict == "higher"
    text = list(csv.DictReader(io.StringIO(to_csv(summary))))
    assert float(text[2]["exhausted_at_end_mean"]) == 12.0
    assert text[3]["spent_max_at_end_mean"] == text[3]["exhausted_at_end_mean"] == ""
    assert text[2]["rounds_difference_mean"] == "-10.0"


def test_an_early_end_is_not_faster(comparison: Comparison) -> None:
    tested = {metric.key for metric in summarise(comparison).tested}
    assert "simulated_seconds" not in tested
    assert {"rounds", "round_seconds"} <= tested
    *_, means, _, _, _ = tables(summarise(comparison))
    assert means.columns == ("Policy", "Rounds", "Mean round (s)", "Evenness")


def test_the_page_draws_and_tells_it(comparison: Comparison) -> None:
    summary = summarise(comparison)
    charts = {chart["name"]: chart for chart in page_data(summary)["charts"]}
    names = [f"{column}-{axis}" for column in ("spent_max", "spent_mean") for axis in _AXES]
    assert [name for name in charts if "spent" in name] == [*names, "accuracy-spent_max"]
    for name in names:
        assert charts[name]["mark"] == {
            "value": CAP,
            "text": "cap ε = 30 per coordinate",
            "within": True,
        }
    curve = charts["spent_max-round"]["curves"][2]
    assert curve["policy"] == 2
    assert curve["mean"][:7] == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, None]
    assert charts["accuracy-spent_max"]["xTitle"] == "largest ε per coordinate spent by a client"
    html = to_html(summary)
    for text in (SIMULATED, "privacy ends the run: 0 of 12", "up to 16 rounds"):
        assert text in html[: html.index("<main>")]
    assert "ε = 9,300 of the update" in html
    json.loads(html[html.index('id="data">') + 10 : html.index("</script>")])


_AXES: tuple[Axis, Axis] = ("seconds", "round")


def test_a_whole_report(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "save", lambda figure, path: None)
    written = write_report(
        [folder], tmp_path, formats=("png",), parquet=True, tensorboard=True, target=0.1
    )
    assert {"leakage.png", "privacy-utility.png"} <= {path.name for path in written}
    assert SIMULATED in (tmp_path / "summary.md").read_text(encoding="utf-8")
    with (tmp_path / "rounds.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ended = [row for row in rows if row["policy"] == "all-clients" and row["seed"] == "1"]
    assert [row["spent_max"] for row in ended] == ["5.0", "10.0", "15.0", "20.0", "25.0", "30.0"]
    assert [row["num_exhausted"] for row in ended] == ["0"] * 5 + ["12"]
    assert {row["spent_mean"] for row in rows if row["policy"] == "open"} == {""}
    spent = _spent(load([folder]).runs["random"][1])
    random = [row for row in rows if row["policy"] == "random" and row["seed"] == "1"]
    for name, expected in (("spent_max", spent.max(axis=1)), ("spent_mean", spent.mean(axis=1))):
        np.testing.assert_allclose([float(row[name]) for row in random], expected, atol=1e-7)
    (events,) = (tmp_path / "tensorboard" / "all-clients" / "seed-0").iterdir()
    assert b"spent_max" in events.read_bytes()
    (events,) = (tmp_path / "tensorboard" / "open" / "seed-0").iterdir()
    assert b"spent_max" not in events.read_bytes()


def test_gaussian_noise_is_counted_as_rho_and_told_as_epsilon(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_FOLDER_VARIABLE, str(tmp_path / "state"))
    gaussian = Gaussian(clip=1.0, delta=1e-5)
    private = replace(PRIVACY, mechanism=gaussian, noise="secure")
    changed = replace(
        experiment,
        policies={"all-clients": AllClients()},
        seeds=(0,),
        rounds=6,
        privacy=private,
        unprotected=frozenset(),
    )
    for cell in lay_out(tmp_path / "runs", changed):
        execute(cell)
    comparison = load([tmp_path / "runs"])
    assert comparison.notes[-1] == "privacy: ε ≤ 30, δ = 1e-05 per client (Gaussian), ledger kept"
    (policy,) = summarise(comparison).policies
    assert policy.values["spent_max_at_end"] == pytest.approx(gaussian.cap(CAP), rel=1e-8)
    assert policy.values["whole_update_epsilon_at_end"] == pytest.approx(CAP, rel=1e-6)
    axes = figures.leakage(comparison).axes[0]
    assert axes.get_ylabel() == "largest ρ (zCDP) spent by a client"
    assert [text.get_text() for text in axes.texts] == [
        f"cap ρ = {gaussian.cap(CAP):.3g} (ε = 30, δ = 1e-05)"
    ]


def _promise(mechanism: Laplace) -> Experiment:
    privacy = Privacy(epsilon=40.0, mechanism=mechanism, noise="secure")
    return Experiment(policies={"random": Random()}, world=PauseGroups(), rounds=1, privacy=privacy)


def test_the_promise_in_words() -> None:
    vector, coordinate = Laplace(), Laplace(mode="per-coordinate")
    (line,) = statement(_promise(vector))
    assert line == "privacy: ε ≤ 40 per client (Laplace, vector), ledger kept"
    (line,) = statement(_promise(coordinate))
    assert line == (
        "privacy: ε ≤ 40 per coordinate per client (Laplace, per-coordinate), ledger kept"
    )
    assert list(in_words(_promise(vector), None))[0::2] == [
        "Updates are clipped to an L1 norm of 1 and get Laplace noise.",
        "The cap: Laplace: ε = 40 of the update.",
    ]
    *_, cap = in_words(_promise(coordinate), None)
    assert cap == (
        "The cap: Laplace per coordinate: ε = 40 of each coordinate; the ε of a whole update grows "
        "with its coordinates."
    )
    without = replace(_promise(vector), unprotected=frozenset(["random"]))
    assert statement(without) == ()
    assert statement(replace(_promise(vector), privacy=None)) == ()


def test_with_and_without_privacy_from_two_experiments(write_run: "WriteRun") -> None:
    runs = [write_run("bsfl", spent=[1.0, 2.0, 3.0], privacy=PRIVACY), write_run("random")]
    for order in (runs, runs[::-1]):
        comparison = load(order)
        assert comparison.protected == ("bsfl",)
        assert comparison.notes == (f"{SIMULATED}; none for random",)
        assert comparison.experiment.unprotected == {"random"}


def test_two_promises_cannot_be_compared(write_run: "WriteRun", tmp_path: Path) -> None:
    here = write_run("bsfl", spent=[1.0, 2.0, 3.0], privacy=PRIVACY)
    other = replace(PRIVACY, epsilon=7.0)
    there = write_run("random", spent=[1.0, 2.0, 3.0], privacy=other)
    with pytest.raises(ConfigError, match=r"30\.0.*7\.0"):
        load([here, there])
    without = write_run("bsfl", 1, folder=tmp_path / "without")
    with pytest.raises(ConfigError, match="'bsfl'"):
        load([here, without])


def test_the_file_of_a_ledger_compares_nothing(write_run: "WriteRun") -> None:
    runs = [
        write_run(label, spent=[1.0, 2.0, 3.0], privacy=replace(PRIVACY, ledger=f"/{label}.sqlite"))
        for label in ("bsfl", "random")
    ]
    privacy = load(runs).privacy
    assert privacy is not None
    assert privacy.ledger is None
    alone = load(runs[:1]).privacy
    assert alone is not None
    assert alone.ledger == "/bsfl.sqlite"
