"""What ``fedmuster flower check`` finds in apps of many styles."""

import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.adapters import flower_apps as apps
from tests.adapters.flower_apps import Files, lay_out

from fedmuster.adapters.flower import readiness
from fedmuster.adapters.flower.readiness import Finding, Readiness, rehearsal
from fedmuster.adapters.flower.readiness.names import is_valid
from fedmuster.adapters.flower.readiness.probe import Ended, check_imports
from fedmuster.adapters.flower.readiness.project import SUPPORTED, Project
from fedmuster.adapters.flower.readiness.stage import Heard, Played
from fedmuster.core.errors import ConfigError

Read = Callable[[Files], Readiness]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Only the source is read: importing takes a second for each component."""
    monkeypatch.setattr(readiness, "check_imports", lambda project, *, seconds: ({}, []))
    return lambda files: readiness.check(lay_out(files, tmp_path / "app"))


def about(found: Readiness, subject: str, level: str | None = None) -> list[Finding]:
    return [f for f in found.findings if f.about == subject and level in (None, f.level)]


def the(found: Readiness, subject: str, level: str) -> Finding:
    (finding,) = about(found, subject, level)
    return finding


def test_a_quickstart_is_told_its_own_lines(read: Read) -> None:
    found = read(apps.QUICKSTART)
    assert not found.ready
    muster = the(found, "Muster", "must change")
    assert muster.where == "small/server_app.py:17"
    assert "above line 17" in muster.text
    # Half of ten nodes were to train: so many are the cohort.
    assert muster.write.splitlines() == [
        "from fedmuster.adapters.flower import Muster",
        '    averaging = Muster(averaging, policy="bsfl", cohort_size=5, folder="runs/small")',
    ]
    fraction = the(found, "strategy", "must change")
    assert "fraction_train = 0.5" in fraction.text
    assert "pyproject.toml:17" in fraction.text
    assert fraction.write == "fraction-train = 1.0"
    mods = the(found, "mods", "note")
    assert mods.where == "small/client_app.py:7"
    assert mods.write.splitlines()[-1] == "app = ClientApp(mods=[ReportingMod()])"


def test_the_lines_that_it_prints_make_the_app_ready(read: Read) -> None:
    files = dict(apps.QUICKSTART)
    for _ in range(2):  # the second time with what the first time told
        found = read(files)
        for finding in found.findings:
            if finding.about == "Muster" and finding.write:
                lines = files["small/server_app.py"].splitlines()
                top, line = finding.write.splitlines()
                lines.insert(int(finding.where.rpartition(":")[2]) - 1, line)
                files["small/server_app.py"] = "\n".join([top, *lines])
            elif finding.about == "mods" and finding.write:
                top, line = finding.write.splitlines()
                text = files["small/client_app.py"].replace("app = ClientApp()", line)
                files["small/client_app.py"] = f"{top}\n{text}"
            elif finding.level == "must change":
                text = files["pyproject.toml"].replace("fraction-train = 0.5", finding.write)
                files["pyproject.toml"] = text
    found = read(files)
    assert found.must_change == ()
    assert about(found, "mods", "ok")
    assert found.nodes == 5


def test_a_ready_app_is_ready_and_its_notes_say_what_to_know(read: Read) -> None:
    found = read(apps.READY)
    assert found.ready
    assert (
        "'runs/small', relative to where the ServerApp's process"
        in the(found, "folder", "note").text
    )
    assert the(found, "deadline", "ok").text.endswith("30 s")
    assert "bsfl" in the(found, "policy", "ok").text
    assert "client-id" in the(found, "identity", "note").write
    assert "num-examples" in the(found, "metrics", "ok").text


def test_a_strategy_with_a_start_of_its_own_in_another_module(read: Read) -> None:
    found = read(apps.CUSTOM_START)
    muster = the(found, "Muster", "must change")
    # Above start, not below the constructor: the app calls a method of its own in between.
    assert muster.where == "small/server_app.py:19"
    # min_train_nodes goes through the class's own __init__ by position.
    assert "keeper = Muster(keeper," in muster.write
    assert "cohort_size=8" in muster.write
    own = the(found, "strategy", "note")
    assert own.where == "small/strategy.py:17"
    assert "its own start" in own.text
    assert found.nodes == 8


def test_a_strategy_that_a_function_of_another_module_builds(read: Read) -> None:
    found = read(apps.FACTORY)
    muster = the(found, "Muster", "must change")
    assert "FedProx" in muster.text
    assert "FedAdam" in muster.text
    fractions = [f for f in about(found, "strategy", "must change") if "fraction" in f.text]
    assert {f.text.partition(":")[0] for f in fractions} == {"FedProx", "FedAdam"}
    assert all("run config 'fraction-train'" in f.text for f in fractions)
    waiting = the(found, "evaluation", "must change")
    assert waiting.where == "small/build.py:11"
    assert "min_available_nodes = 12" in waiting.text
    assert waiting.write == "min_available_nodes=10"


def test_a_class_and_settings_that_are_put_together(read: Read) -> None:
    found = read(apps.CHOSEN_CLASS)
    (first,) = about(found, "Muster", "must change")
    assert "FedAvg, FedAdam is started" in first.text
    assert "cohort_size=6" in first.write  # half of ten nodes, but at least six
    fraction, *_ = about(found, "strategy", "must change")
    assert "fraction_train = 0.5 (run config 'fraction-train'" in fraction.text


def test_muster_must_be_outermost(read: Read) -> None:
    found = read(apps.DP_OUTSIDE)
    muster = the(found, "Muster", "must change")
    assert "must be outermost" in muster.text
    assert muster.write.splitlines() == [
        "averaging = DifferentialPrivacyServerSideFixedClipping(averaging, …)",
        "averaging = Muster(averaging, policy='bsfl', cohort_size=4, folder='runs/small', "
        "deadline_seconds=30)",
    ]


def test_noise_must_fit_the_cohort(read: Read) -> None:
    found = read(apps.DP_INSIDE)
    assert about(found, "Muster", "must change") == []
    noise = the(found, "strategy", "must change")
    assert "num_sampled_clients = 5" in noise.text
    assert noise.write == "num_sampled_clients=4"


def test_the_older_api_is_translated(read: Read) -> None:
    found = read(apps.LEGACY)
    old = about(found, "older API", "must change")
    named = " ".join(f.text for f in old)
    for name in ("flwr.server.strategy.FedAvg", "ServerAppComponents", "NumPyClient", "client_fn"):
        assert name in named
    assert "fraction_fit is now fraction_train" in named
    assert "small/server_app.py:9" in {f.where for f in old}
    examples = [f.write for f in old if f.write]
    assert len(examples) == len(set(examples))
    assert any("@app.main()" in text for text in examples)
    assert any("@app.train()" in text for text in examples)
    assert about(found, "Muster") == []  # first things first


def test_secure_aggregation_has_no_place(read: Read) -> None:
    server = apps.LEGACY["small/server_app.py"].replace(
        "return ServerApp", "LegacyContext(context)\n    return ServerApp"
    )
    server = server.replace("import ServerApp,", "import LegacyContext, ServerApp,")
    found = read({**apps.LEGACY, "small/server_app.py": server})
    assert any("SecAgg+" in f.text for f in about(found, "older API", "must change"))


def test_scripts_of_the_oldest_api_have_no_manifest(read: Read) -> None:
    found = read(apps.SCRIPTS)
    assert the(found, "manifest", "must change").write.startswith("[project]")
    old = about(found, "older API", "must change")
    assert [f.where for f in old if "start_server" in f.text] == ["server.py:6"]


def test_rounds_that_are_started_one_by_one(read: Read) -> None:
    found = read(apps.IN_A_LOOP)
    assert the(found, "rounds", "note").where == "small/server_app.py:18"
    muster = the(found, "Muster", "must change")
    assert "above line 17" in muster.text  # once, and not in each round anew
    assert muster.write.splitlines()[1].startswith("    averaging = Muster(averaging, ")


def test_a_strategy_that_is_made_in_the_loop_is_wrapped_there(read: Read) -> None:
    made = "    averaging = FedAvg(fraction_train=fraction_train)\n"
    loop = "    for number in range(num_rounds):\n"
    files = edited(apps.IN_A_LOOP, "small/server_app.py", made + loop, loop + "  " + made)
    muster = the(read(files), "Muster", "must change")
    assert "above line 18" in muster.text
    assert muster.write.splitlines()[1].startswith("      averaging = Muster(averaging, ")


def test_an_app_without_a_strategy(read: Read) -> None:
    found = read(apps.BY_HAND)
    muster = the(found, "Muster", "must change")
    assert muster.where == "small/server_app.py:10"
    assert "send_and_receive" in muster.text


def test_a_strategy_that_has_no_name(read: Read) -> None:
    found = read(apps.INLINE)
    muster = the(found, "Muster", "must change")
    assert "strategy = Muster(FedAvg(min_evaluate_nodes=11)," in muster.write
    assert "min_evaluate_nodes = 11" in the(found, "evaluation", "must change").text
    assert found.nodes == 11


def test_privacy_needs_both_sides(read: Read) -> None:
    server_only = the(read(apps.PRIVATE_SERVER_ONLY), "privacy", "must change")
    assert server_only.write.endswith("app = ClientApp(mods=[PrivateMod(), ReportingMod()])")
    client_only = the(read(apps.PRIVATE_CLIENT_ONLY), "privacy", "must change")
    assert client_only.where.startswith("small/server_app.py:")
    assert "privacy=Privacy(" in client_only.write
    assert read(apps.PRIVATE).ready


def edited(files: Files, name: str, old: str, new: str) -> Files:
    assert old in files[name]
    return {**files, name: files[name].replace(old, new)}


def edited_server(old: str, new: str) -> Files:
    return edited(apps.READY, "small/server_app.py", old, new)


def test_more_nodes_than_the_cohort(read: Read) -> None:
    found = read(edited_server("FedAvg()", "FedAvg(1.0, min_train_nodes=5)"))
    least = the(found, "strategy", "must change")
    assert "min_train_nodes = 5 is more than the cohort of 4" in least.text
    assert "min_nodes=5" in least.text
    assert least.write == "min_train_nodes=1"


def test_what_is_computed_is_told_as_not_known(read: Read) -> None:
    found = read(edited_server("FedAvg()", "FedAvg(fraction_train=len(context.run_config) / 2)"))
    assert found.ready
    assert "fraction_train is not known" in the(found, "strategy", "note").text


def test_musters_own_settings(read: Read) -> None:
    found = read(edited_server('policy="bsfl", cohort_size=4,', 'policy="bsfll", cohort=4,'))
    texts = " ".join(f.text for f in found.must_change)
    assert "no setting 'cohort'" in texts
    assert "needs cohort_size" in texts
    assert "did you mean 'bsfl'" in texts


def test_a_muster_that_is_there_only_sometimes(read: Read) -> None:
    text = apps.READY["small/server_app.py"]
    block = text[text.index("    averaging = Muster(") : text.index("    result")]
    indented = "    if num_rounds > 1:\n" + "".join(f"    {b}\n" for b in block.splitlines())
    found = read(edited_server(block, indented))
    assert "or else FedAvg" in the(found, "Muster", "note").text


def test_a_deadline_is_recommended(read: Read) -> None:
    found = read(edited_server(", deadline_seconds=30", ""))
    assert "3600 s" in the(found, "deadline", "note").text


def test_client_side_clipping_needs_its_mod(read: Read) -> None:
    kind = "DifferentialPrivacyClientSideFixedClipping"
    files = edited_server("import FedAvg", f"import {kind}, FedAvg")
    files = edited(files, "small/server_app.py", "FedAvg()", f"{kind}(FedAvg(), 0.5, 1.0, 4)")
    found = read(files)
    assert "needs fixedclipping_mod" in the(found, "mods", "must change").text


def test_mods_of_the_training_function_count(read: Read) -> None:
    client = apps.REPORTING_CLIENT.replace("mods=[ReportingMod()]", "").replace(
        "@app.train()", "@app.train(mods=[ReportingMod()])"
    )
    found = read({**apps.READY, "small/client_app.py": client})
    assert the(found, "mods", "ok").text == "clients report their time"
    assert about(found, "mods", "note") == []
    both = client.replace("ClientApp()", "ClientApp(mods=[fixedclipping_mod])")
    both = both.replace("import ClientApp", "import ClientApp\nfrom flwr.clientapp.mod import *")
    found = read({**apps.READY, "small/client_app.py": both})
    assert "a mod before ReportingMod" in the(found, "mods", "note").text  # the app's come first


@pytest.mark.parametrize(
    ("completed", "refused", "level"), [(4, 0, "ok"), (3, 1, "note"), (0, 4, "must change")]
)
def test_a_rehearsal_in_which_replies_are_refused_shows_why(
    completed: int, refused: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "fedmuster: partition-2 is refused: its array 'w' is not finite"
    played = Played(
        mustered=True,
        heard=[Heard(node=101, asked="train", signals=["loss"], metrics=["loss"])],
        log=[why],
        chosen=[f"partition-{number}" for number in range(4)],
        completed=completed,
        refused=refused,
    )
    ended = Ended(result=asdict(played), problem="")
    monkeypatch.setattr(rehearsal, "run_alone", lambda *args, **kwargs: ended)
    found = readiness.rehearse(lay_out(apps.READY, tmp_path), nodes=4)
    choice = the(found, "choice", level)
    assert f"{completed} completed, {refused} were refused" in choice.text
    assert choice.write == ("" if level == "ok" else why)


def test_one_node_after_the_other(read: Read) -> None:
    files = edited_server("FedAvg", "FedXgbCyclic")
    cyclic = the(read(files), "strategy", "must change")
    assert "one node train in each round" in cyclic.text
    assert "FedXgbBagging trains a cohort" in cyclic.text
    assert cyclic.write.splitlines() == [
        "strategy = FedXgbCyclic(…, min_available_nodes=1)",
        "strategy.min_train_nodes = 1",
        "strategy = Muster(strategy, cohort_size=1, …)",
    ]
    files = edited(files, "small/server_app.py", "cohort_size=4", "cohort_size=1")
    files = edited(files, "small/server_app.py", "Cyclic()", "Cyclic(min_available_nodes=1)")
    found = read(files)
    assert about(found, "strategy", "must change") == []
    assert "Muster chooses that one" in the(found, "strategy", "note").text


def test_another_weight_is_looked_for(read: Read) -> None:
    found = read(edited_server("FedAvg()", 'FedAvg(weighted_by_key="weight")'))
    assert "'weight' is not written" in the(found, "metrics", "note").text


def test_the_manifest(read: Read) -> None:
    found = read(edited(apps.READY, "pyproject.toml", 'publisher = "somebody"', ""))
    assert '"publisher" missing' in the(found, "manifest", "must change").text
    found = read(edited(apps.READY, "pyproject.toml", '"LICENSE"', '"LICENSE.txt"'))
    assert "LICENSE.txt is not there" in the(found, "licence", "must change").text
    found = read(edited(apps.READY, "pyproject.toml", '"flwr>=1.39"', '"flwr<1.20"'))
    assert "wants flwr<1.20" in the(found, "flower", "must change").text
    found = read(edited(apps.READY, "pyproject.toml", ', "fedmuster[flower]"', ""))
    assert about(found, "dependencies", "note")


def test_no_app_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        readiness.check(tmp_path / "nowhere")
    lay_out({"pyproject.toml": "[project"}, tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        readiness.check(tmp_path)


def test_the_versions_are_those_of_the_extra() -> None:
    manifest = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(manifest.read_text())["project"]["optional-dependencies"]
    (wanted,) = (Requirement(line) for line in extras["flower"] if "flwr" in line)
    assert wanted.specifier == SUPPORTED


# --- Folders, loops, phases --------------------------------------------------------------------


TWO_PHASES = edited(
    apps.QUICKSTART,
    "small/server_app.py",
    "    np.save(",
    "    tuned = FedAvg()\n"
    "    result = tuned.start(grid=grid, initial_arrays=result.arrays, num_rounds=2)\n"
    "    np.save(",
)
SECOND_MUSTER = (
    "    tuned = Muster(FedAvg(), policy='bsfl', cohort_size=4, folder=FOLDER)\n"
    "    tuned.start(grid=grid, initial_arrays=result.arrays, num_rounds=2)\n"
    "    np.save("
)


def with_second(folder: str, before: str = "") -> Files:
    return edited_server("    np.save(", before + SECOND_MUSTER.replace("FOLDER", folder))


def test_phases_are_given_folders_of_their_own(read: Read) -> None:
    lines = [f.write.splitlines()[-1] for f in about(read(TWO_PHASES), "Muster", "must change")]
    assert len(lines) == 2
    assert lines[0].endswith('folder="runs/small")')
    assert lines[1].endswith('folder="runs/small-2")')


def test_a_proposed_folder_is_not_one_that_the_app_has(read: Read) -> None:
    bare = SECOND_MUSTER.replace(
        "Muster(FedAvg(), policy='bsfl', cohort_size=4, folder=FOLDER)", "FedAvg()"
    )
    muster = the(read(edited_server("    np.save(", bare)), "Muster", "must change")
    assert muster.write.endswith('folder="runs/small-2")')


def test_a_strategy_that_is_started_twice_is_wrapped_once(read: Read) -> None:
    again = "    averaging.start(grid=grid, initial_arrays=result.arrays)\n    np.save("
    found = read(edited(apps.QUICKSTART, "small/server_app.py", "    np.save(", again))
    assert the(found, "Muster", "must change").where == "small/server_app.py:17"
    assert "one Muster serves both" in the(found, "rounds", "note").text


def test_two_musters_must_not_share_a_folder(read: Read) -> None:
    found = read(with_second('"runs/small/"'))
    same = the(found, "folder", "must change")
    assert "small/server_app.py:18, 'runs/small'" in same.text
    assert same.where == "small/server_app.py:26"
    assert same.write == 'folder="runs/small-2"'
    named = read(with_second("where", '    where = "runs/small"\n'))
    assert the(named, "folder", "must change").write == 'folder=str(where) + "-2"'
    assert about(read(with_second('"runs/tuned"')), "folder", "must change") == []


@pytest.mark.parametrize(
    "choice",
    [
        "if num_rounds > 1:\n        made = ONE\n    else:\n        made = OTHER\n",
        "made = ONE if num_rounds > 1 else OTHER\n",
        "if num_rounds > 1:\n        ONE.start(grid=grid, initial_arrays=arrays)\n        return\n"
        "    made = OTHER\n",
    ],
    ids=["branches", "expression", "early return"],
)
def test_musters_of_which_a_run_makes_one_may_share_a_folder(choice: str, read: Read) -> None:
    made = 'Muster(KIND(), policy="bsfl", cohort_size=4, folder="runs/small")'
    choice = choice.replace("ONE", made).replace("OTHER", made).replace("KIND", "FedAvg")
    text = apps.READY["small/server_app.py"]
    block = text[text.index("    averaging = FedAvg(") : text.index("    np.save")]
    start = "    result = made.start(grid=grid, initial_arrays=arrays)\n"
    found = read(edited_server(block, f"    {choice}{start}"))
    assert about(found, "folder", "must change") == []
    assert len(about(found, "deadline")) == 2  # both were seen


MADE = "    averaging = FedAvg(fraction_train=fraction_train)\n"
LOOP = "    for number in range(num_rounds):\n"


def looped(loop: str, made: str) -> Files:
    """Each iteration has a strategy of its own."""
    return edited(apps.IN_A_LOOP, "small/server_app.py", MADE + LOOP, f"    {loop}\n{made}")


@pytest.mark.parametrize(
    ("loop", "made", "folder"),
    [
        ("for seed in range(3):", "FedAvg()", "-{seed}"),
        ("for kind in (FedAvg, FedAvg):", "kind()", "-{kind.__name__}"),
        ("for name, averaging in {'a': FedAvg()}.items():", "", "-{name}"),
        ("for averaging in [FedAvg()]:", "", "-{number}"),
        ("while num_rounds:", "FedAvg()", "-{number}"),
    ],
)
def test_a_strategy_for_each_iteration_needs_a_folder_for_each(
    loop: str, made: str, folder: str, read: Read
) -> None:
    found = read(looped(loop, f"      averaging = {made}\n" if made else ""))
    muster = the(found, "Muster", "must change")
    line = muster.write.splitlines()[1]
    assert line.startswith("      averaging = Muster(averaging, ")
    assert line.endswith(f'folder=f"runs/small{folder}")')
    note = the(found, "folder", "note")
    assert "a folder of its own" in note.text
    assert ("enumerate" in note.text) is ("number" in folder)
    assert note.write == f'folder=f"runs/small{folder}"'
    assert about(found, "rounds") == []  # "make it once" would be wrong


@pytest.mark.parametrize(
    ("folder", "level"),
    [('"runs/small"', "must change"), ('f"runs/small-{seed}"', "ok"), ("str(arrays)", "note")],
)
def test_the_folder_of_a_muster_in_a_loop(folder: str, level: str, read: Read) -> None:
    made = f'Muster(FedAvg(), policy="bsfl", cohort_size=4, folder={folder})'
    files = looped("for seed in range(3):", f"      averaging = {made}\n")
    files = edited(files, "small/server_app.py", "\napp =", f"{IMPORT}\napp =")
    found = [f for f in about(read(files), "folder", level) if "iteration" in f.text]
    assert len(found) == 1
    assert found[0].write == ("" if level == "ok" else 'folder=f"runs/small-{seed}"')


IMPORT = "from fedmuster.adapters.flower import Muster\n"


def test_rounds_one_by_one_of_a_strategy_for_each_seed(read: Read) -> None:
    made = "      averaging = FedAvg()\n      for number in range(3):\n  "
    found = read(looped("for seed in range(3):", made))
    muster = the(found, "Muster", "must change")
    assert "above line 18" in muster.text  # the inner loop: once for each seed
    assert muster.write.splitlines()[1].startswith("      averaging = Muster(")
    assert 'folder=f"runs/small-{seed}"' in muster.write
    assert "before the loop" in the(found, "rounds", "note").text


def test_a_muster_is_not_made_anew_around_the_same_strategy(read: Read) -> None:
    wrap = '      made = Muster(averaging, policy="bsfl", cohort_size=4, folder="/runs/small")\n'
    files = edited(apps.IN_A_LOOP, "small/server_app.py", LOOP, LOOP + wrap)
    files = edited(files, "small/server_app.py", "averaging.start(", "made.start(")
    files = edited(files, "small/server_app.py", "\napp =", f"{IMPORT}\napp =")
    assert "make it once, before the loop" in the(read(files), "rounds", "must change").text
    more = edited(files, "small/server_app.py", "num_rounds=num_rounds", "num_rounds=number + 1")
    assert the(read(more), "rounds", "note")


# --- What names stand for ----------------------------------------------------------------------


def test_stars_bring_strategies(read: Read) -> None:
    starred = edited(apps.QUICKSTART, "small/server_app.py", "import FedAvg", "import *")
    found = read(starred)
    assert "FedAvg is started as it is" in the(found, "Muster", "must change").text
    assert "fraction_train = 0.5" in the(found, "strategy", "must change").text


def test_stars_bring_the_apps_own_strategies(read: Read) -> None:
    files = edited(apps.CUSTOM_START, "small/server_app.py", "import PatientFedAvg", "import *")
    files = {**files, "small/strategy.py": "from small.kinds import *\nfrom .strategy import *\n"}
    files["small/kinds.py"] = (
        apps.CUSTOM_START["small/strategy.py"]
        .replace("import FedAvg as Base", "import *")
        .replace("(Base)", "(FedAvg)")
    )
    found = read(files)
    assert "PatientFedAvg is started" in the(found, "Muster", "must change").text
    assert "cohort_size=8" in the(found, "Muster", "must change").write
    hidden = {**files, "small/kinds.py": files["small/kinds.py"] + "__all__ = ['Keeper']\n"}
    assert "keeper is started" in the(read(hidden), "Muster", "must change").text


WRAPPER = """\
class Logging(Strategy):
    def __init__(self, inner, level=3):
        self.level = level
        self.inner = inner


@app.main()"""


def test_a_wrapper_of_ones_own_is_seen_through(read: Read) -> None:
    files = edited(apps.QUICKSTART, "small/server_app.py", "import FedAvg", "import *")
    files = edited(files, "small/server_app.py", "@app.main()", WRAPPER)
    files = edited(
        files,
        "small/server_app.py",
        "= FedAvg(fraction_train=fraction_train)",
        "= Logging(FedAvg(fraction_train=0.3))",
    )
    found = read(files)
    assert "cohort_size=3" in the(found, "Muster", "must change").write
    inside = "Logging(Muster(FedAvg(), policy='bsfl', cohort_size=3, folder='/runs'))"
    files = edited(files, "small/server_app.py", "Logging(FedAvg(fraction_train=0.3))", inside)
    files = edited(files, "small/server_app.py", "\napp =", f"{IMPORT}\napp =")
    assert "must be outermost" in the(read(files), "Muster", "must change").text


# --- Gains, evaluation, names ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ['"tifl"', "TiFL()", "Lifted(policy=chosen)"])
def test_a_policy_that_learns_from_gains_wants_an_evaluation_marked(
    policy: str, read: Read
) -> None:
    files = edited_server('"bsfl"', policy)
    files = edited(
        files,
        "small/server_app.py",
        "\napp =",
        "from fedmuster.policies import FedSUV, Lifted, TiFL\n\nchosen = FedSUV()\napp =",
    )
    gains = the(read(files), "gains", "note")
    assert ("fedsuv" if "chosen" in policy else "tifl") in gains.text
    assert gains.where == "small/client_app.py:22"
    assert gains.write.splitlines() == [
        "reporting = ReportingMod()",
        "app = ClientApp(mods=[reporting])",
        "",
        "@app.evaluate()",
        "@reporting.evaluates",
        "def evaluate(message: Message, context: Context): …",
    ]
    named = edited(
        files,
        "small/client_app.py",
        "app = ClientApp(mods=[ReportingMod()])",
        "mod = ReportingMod()\napp = ClientApp(mods=[mod])",
    )
    assert the(read(named), "gains", "note").write.startswith("@app.evaluate()\n@mod.evaluates\n")
    marked = edited(
        named, "small/client_app.py", "@app.evaluate()", "@app.evaluate()\n@mod.evaluates"
    )
    assert about(read(marked), "gains") == []
    assert about(read(apps.READY), "gains") == []


def test_gains_without_a_mod_and_an_evaluation(read: Read) -> None:
    client = apps.CLIENT[: apps.CLIENT.index("\n\n@app.evaluate")]
    files = {**edited_server('"bsfl"', '"fedsuv"'), "small/client_app.py": client}
    gains = the(read(files), "gains", "note")
    assert "no evaluation yet" in gains.text
    assert gains.write.splitlines()[:3] == [
        "from fedmuster.adapters.flower import ReportingMod",
        "reporting = ReportingMod()",
        "app = ClientApp(mods=[reporting])",
    ]


def test_who_only_evaluates_has_nobody_to_choose(read: Read) -> None:
    wrapped = read(edited_server("FedAvg()", "FedAvg(fraction_train=0.0)"))
    nobody = the(wrapped, "strategy", "must change")
    assert "lets nobody train" in nobody.text
    assert "Muster is for training" in nobody.text
    bare = read(edited(apps.QUICKSTART, "pyproject.toml", "train = 0.5", "train = 0.0"))
    assert the(bare, "Muster", "must change").write == ""
    last = "    FedAvg(fraction_train=0.0).start(grid=grid, initial_arrays=arrays)\n    np.save("
    found = read(edited_server("    np.save(", last))
    assert found.ready
    assert "leave it as it is" in the(found, "Muster", "note").text


@pytest.mark.parametrize(
    ("name", "mended"),
    [
        ("a01_torch", "a01-torch"),
        ("1st", "app-1st"),
        ("_", "app"),
        ("my app", "my-app"),
        ("a" * 40, "a" * 32),
    ],
)
def test_a_name_that_flower_refuses(name: str, mended: str, read: Read) -> None:
    found = read(edited(apps.READY, "pyproject.toml", '"small"', f'"{name}"'))
    refused = the(found, "manifest", "must change")
    assert about(found, "manifest", "ok") == []
    assert refused.where == "pyproject.toml:2"
    assert refused.write == f'name = "{mended}"'
    assert is_valid(mended)


def test_a_name_that_is_missing_is_told_once(read: Read) -> None:
    found = read(edited(apps.READY, "pyproject.toml", 'name = "small"\n', ""))
    assert '"name" missing' in the(found, "manifest", "must change").text


@pytest.mark.parametrize(
    "name", ["small", "a-1", "a-", "-a", "1a", "a_b", "a.b", "é1", "", "a" * 32, "a" * 33]
)
def test_names_are_judged_as_flower_judges_them(name: str) -> None:
    flowers = pytest.importorskip("flwr.supercore.utils").is_valid_name
    assert is_valid(name) is flowers(name)[0]


# --- With imports ------------------------------------------------------------------------------


def test_an_import_that_fails_is_explained(tmp_path: Path) -> None:
    found = readiness.check(lay_out(apps.BROKEN_IMPORT, tmp_path / "app"))
    client = the(found, "clientapp", "must change")
    assert client.where == "small/client_app.py:3"
    assert "No module named 'no_such_package_anywhere'" in client.text
    assert client.write == f"pip install {tmp_path / 'app'}"
    assert about(found, "serverapp", "ok")
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("files", "where", "text", "seconds"),
    [
        (apps.BROKEN_SYNTAX, "small/server_app.py:8", "'(' was never closed", 60),
        (apps.HANGING, "pyproject.toml:12", "took longer than 3 s", 3),
        (apps.EXITING, "pyproject.toml:12", "with code 3; it printed last: so long", 60),
        (apps.NOT_AN_APP, "pyproject.toml:12", "is a str, expected a ServerApp", 60),
    ],
    ids=["syntax", "hanging", "exiting", "not an app"],
)
def test_imports_that_go_wrong(
    files: Files, where: str, text: str, seconds: float, tmp_path: Path
) -> None:
    manifest = apps.MANIFEST.replace('clientapp = "small.client_app:app"\n', "")
    folder = lay_out({**files, "pyproject.toml": manifest}, tmp_path / "app")
    _, findings = check_imports(Project.load(folder), seconds=seconds)
    (server,) = (f for f in findings if f.about == "serverapp")
    assert server.level == "must change"
    assert server.where == where
    assert text in server.text


def test_mods_are_found_by_importing_where_reading_does_not_tell(tmp_path: Path) -> None:
    client = apps.REPORTING_CLIENT.replace("[ReportingMod()]", "list((ReportingMod(),))")
    files = {**apps.QUICKSTART, "small/client_app.py": client}
    found = readiness.check(lay_out(files, tmp_path / "app"))
    assert found.importable
    assert about(found, "mods", "ok")
