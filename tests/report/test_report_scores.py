"""What journals say of scores, counted once more in plain loops."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.report.watched_runs import described, write_candidates, write_scored

from fedmuster.core.errors import StateError
from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.report.edge_rows import Scores
from fedmuster.report.runs import Run, load
from fedmuster.report.score_series import plane, planes, score_lines, scored, timeline, timelines

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

NAN = np.nan


def _first(path: Path) -> Run:
    (runs,) = load([path]).runs.values()
    return runs[0]


def _scores(run: Run) -> Scores:
    assert run.scores is not None
    return run.scores


def test_scores_are_read(write_run: "WriteRun") -> None:
    values = np.arange(8.0).reshape(4, 2)
    scores = _scores(_first(write_scored(write_run, "bsfl", values, every=2, watched=[1, 3])))
    assert scores.rounds.tolist() == [1, 3]
    assert scores.clients.tolist() == [1, 3]
    np.testing.assert_array_equal(scores.values["score"], values[::2])


def test_nobody_watched(write_run: "WriteRun") -> None:
    comparison = load([write_run("bsfl"), write_run("random", scores={1: {}})])
    assert all(run.scores is None for runs in comparison.runs.values() for run in runs)
    for told in (scored, planes, timelines):
        assert not told(comparison)


def test_scores_of_rounds_that_are_cut_off_are_not_told(write_run: "WriteRun") -> None:
    long = write_scored(write_run, "bsfl", np.arange(8.0).reshape(4, 2))
    short = write_run("random", seconds=[1.0, 1.0], planned=4)
    (run,) = load([long, short]).runs["bsfl"]
    assert _scores(run).rounds.tolist() == [1, 2]


@pytest.mark.parametrize("watched", [None, [0, 7], [0], [[0, 1]]])
def test_damaged_journals_are_refused(watched: list[int] | None, write_run: "WriteRun") -> None:
    clients = {} if watched is None else {"watched": np.array(watched)}
    path = write_run(scores={1: {"score": np.array([0.1, 0.2])}}, clients=clients)
    with pytest.raises(StateError, match="is damaged"):
        load([path])


def test_the_last_score(write_run: "WriteRun") -> None:
    values = np.array([[1.0, NAN, 3.0], [4.0, NAN, NAN], [NAN, NAN, 5.0]])
    scores = _scores(_first(write_scored(write_run, "bsfl", values)))
    np.testing.assert_array_equal(scores.last("score"), [4.0, NAN, 5.0])


def test_lines_are_evenly_chosen_and_without_holes(write_run: "WriteRun") -> None:
    rng = np.random.default_rng(0)
    values = rng.random((1_000, 100))
    values[rng.random(values.shape) < 0.5] = NAN
    values[-1, :50] = np.arange(50)
    values[:, 7] = NAN  # nothing was ever thought of this one
    run = _first(write_scored(write_run, "bsfl", values))
    lines = score_lines(run)
    last = {line.client: line.values[-1] for line in lines}
    ranked = sorted((v for v in _scores(run).last("score") if not np.isnan(v)), reverse=True)
    assert len(last) == 10
    even = (0, 11, 22, 33, 44, 54, 65, 76, 87, 98)  # of 99
    assert list(last.values()) == [ranked[place] for place in even]
    for line in lines:
        places = line.rounds.astype(int) - 1
        np.testing.assert_array_equal(line.values, values[places, line.client])
        assert len(line.rounds) == 400
        assert line.rounds[-1] == 1 + np.flatnonzero(~np.isnan(values[:, line.client]))[-1]


def test_few_clients_all_have_a_line(write_run: "WriteRun") -> None:
    run = _first(write_scored(write_run, "bsfl", np.array([[2.0, 3.0, 1.0]])))
    assert [line.client for line in score_lines(run)] == [1, 0, 2]


def test_a_policy_without_a_score_has_no_lines(write_run: "WriteRun") -> None:
    comparison = load(
        [
            write_scored(write_run, "bsfl", np.full((3, 4), NAN)),
            write_scored(write_run, "random", np.ones((3, 4))),
        ]
    )
    assert list(scored(comparison)) == ["random"]


def _left(run: Run) -> tuple[FloatArray, FloatArray]:
    values = _scores(run).values
    return values["left_round"][-1], values["left_by"][-1]


@pytest.mark.parametrize("every", [1, 5])
def test_the_timeline_counts(every: int, write_run: "WriteRun") -> None:
    run = _first(write_candidates(write_run, "bsfl", num_watched=20, every=every))
    line = timeline(run)
    left, why = _left(run)
    assert line.watched == 20
    assert line.rounds.tolist() == list(range(1, 13 if every == 1 else 12))  # the last was 11
    assert run.validity is not None
    assert line.validity is not None
    for place, t in enumerate(line.rounds):
        stay = [k for k in range(20) if np.isnan(left[k]) or left[k] > t]
        gone = [k for k in range(20) if k not in stay]
        assert line.candidates[place] == len(stay)
        assert line.eliminated[place] == sum(why[k] == 1 for k in gone)
        assert line.dominated[place] == sum(why[k] == 2 for k in gone)
        mean = np.mean([run.validity[_scores(run).clients[k]] for k in stay])
        assert line.validity[place] == pytest.approx(mean)


def test_when_nobody_is_left_there_is_no_mean(write_run: "WriteRun") -> None:
    path = write_run(
        scores={3: {"left_round": np.array([2.0, 3.0]), "left_by": np.array([1.0, 2.0])}},
        clients=described(4, watched=np.array([0, 2]), validity=np.array([0.1, 0.2, 0.3, 0.4])),
    )
    line = timeline(_first(path))
    assert line.candidates.tolist() == [2, 1, 0]
    assert line.validity is not None
    np.testing.assert_allclose(line.validity, [0.2, 0.3, NAN])


@pytest.mark.parametrize("truth", [(), ("validity",), ("validity", "utility")])
def test_the_plane(truth: tuple[str, ...], write_run: "WriteRun") -> None:
    run = _first(write_candidates(write_run, "bsfl", num_watched=20, every=5, truth=truth))
    own, scores = plane(run), _scores(run)
    left, _ = _left(run)
    assert own.most_rounds == 11
    assert own.clients.tolist() == scores.clients.tolist()
    assert own.true_validity == ("validity" in truth)
    assert own.true_utility == ("utility" in truth)
    counts = run.selection_counts()
    for place, client in enumerate(own.clients):
        known = not np.isnan(left[place])
        assert own.candidate_rounds[place] == (left[place] - 1 if known else 11)
        assert own.chosen[place] == counts[client]
    for name, shown in (("validity", own.validity), ("utility", own.utility)):
        low, high = (scores.values[f"{name}_{end}"][-1] for end in ("low", "high"))
        np.testing.assert_allclose(shown, (low + high) / 2)  # centred around the truth
    points = list(zip(own.validity, own.utility, strict=True))
    if len(truth) < 2:
        points = [point for point, at in zip(points, left, strict=True) if np.isnan(at)]
    front = [
        (v, u)
        for v, u in points
        if not any(a >= v and b >= u and (a, b) != (v, u) for a, b in points)
    ]
    np.testing.assert_array_equal(own.front, sorted(front))


def test_clients_of_whom_nothing_is_known_are_nowhere(write_run: "WriteRun") -> None:
    comparison = load([write_candidates(write_run, "bsfl", rounds=1, truth=())])
    assert planes(comparison) == {}
    assert list(timelines(comparison)) == ["bsfl"]


def test_many_clients_are_averaged_in_cells(write_run: "WriteRun") -> None:
    few = plane(_first(write_candidates(write_run, "few", num_clients=400)))
    assert few.bins() is None
    own = plane(_first(write_candidates(write_run, "many", num_clients=1_000)))
    bins = own.bins()
    assert bins is not None
    mean = bins.mean(own.chosen)
    assert mean.shape == (12, 12)  # about six clients each
    hit = 0
    for row in range(12):
        for column in range(12):
            inside = _within(own.validity, bins.validity_edges, column) & _within(
                own.utility, bins.utility_edges, row
            )
            hit += int(np.count_nonzero(inside))
            if inside.any():
                assert mean[row, column] == pytest.approx(own.chosen[inside].mean())
            else:
                assert np.isnan(mean[row, column])
    assert hit == 1_000


def _within(values: FloatArray, edges: FloatArray, place: int) -> BoolArray:
    last = place == len(edges) - 2
    below = values <= edges[place + 1] if last else values < edges[place + 1]
    return np.asarray(below & (values >= edges[place]))


def test_equal_clients_have_cells_too(write_run: "WriteRun") -> None:
    alike = described(
        500, watched=np.arange(500), validity=np.full(500, 0.5), utility=np.full(500, 0.25)
    )
    names = ("validity_low", "validity_high", "utility_low", "utility_high", "left_by")
    scores = {name: np.zeros(500) for name in names} | {"left_round": np.full(500, NAN)}
    own = plane(_first(write_run(scores={1: scores}, clients=alike)))
    bins = own.bins()
    assert bins is not None
    assert np.count_nonzero(~np.isnan(bins.mean(own.chosen))) == 1
    assert own.front.tolist() == [[0.5, 0.25]]


def test_the_first_seed_is_told(write_run: "WriteRun") -> None:
    comparison = load(
        [write_scored(write_run, "bsfl", np.full((2, 3), 1.0 + seed), seed=seed) for seed in (4, 5)]
    )
    ((line, *_),) = scored(comparison).values()
    assert line.values.tolist() == [1 + 4, 1 + 4]
