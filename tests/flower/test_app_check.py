"""What ``fedmuster flower check`` finds in apps of many styles."""

import io
import json
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from tests.flower import flower_apps as apps
from tests.flower.flower_apps import Files, lay_out

from fedmuster.core.errors import ConfigError
from fedmuster.flower import app_check
from fedmuster.flower.app_check import SUPPORTED, Finding, Play, check, is_valid_name
from fedmuster.flower.app_rehearsal import AppRun

Findings = list[Finding]
Check = Callable[..., Findings]


def in_this_process(play: Play) -> Iterator[Finding]:
    """The same without a process of its own, which takes seconds to start."""
    written = io.StringIO()
    path = list(sys.path)
    shutil.rmtree("rehearsed", ignore_errors=True)
    AppRun(play, written).run()
    sys.path[:] = path
    for name in [name for name in sys.modules if name.partition(".")[0] == "small"]:
        del sys.modules[name]
    return (Finding(*json.loads(line)) for line in written.getvalue().splitlines())


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setattr(app_check, "_played", in_this_process)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # as in the process of its own
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def quickly(files: Files, *, rehearse: bool = False, **settings: Any) -> Findings:
        folder = lay_out(files, tmp_path / "app")
        return list(check(folder, rehearse=rehearse, **settings))

    return quickly


def must_change(found: Findings) -> Findings:
    return [f for f in found if f.level == "must change"]


def about(found: Findings, subject: str, level: str | None = None) -> Findings:
    return [f for f in found if f.about == subject and level in (None, f.level)]


def the(found: Findings, subject: str, level: str) -> Finding:
    (finding,) = about(found, subject, level)
    return finding


def edited(files: Files, name: str, old: str, new: str) -> Files:
    assert old in files[name]
    return {**files, name: files[name].replace(old, new)}


def edited_server(old: str, new: str) -> Files:
    return edited(apps.READY, "small/server_app.py", old, new)


def imported(files: Files, line: str) -> Files:
    return edited(files, "small/server_app.py", "\napp =", f"{line}\n\napp =")


# --- Without Muster ----------------------------------------------------------------------------


def test_a_quickstart_gets_the_lines_that_make_it_ready(checked: Check) -> None:
    files = dict(apps.QUICKSTART)
    found = checked(files)
    muster = the(found, "Muster", "must change")
    assert muster.where == "small/server_app.py:17"
    # Half of ten nodes were to train: so many are the cohort.
    top, line = muster.write.splitlines()
    assert line == (
        '    averaging = Muster(averaging, policy="bsfl", cohort_size=5, folder="runs/small")'
    )
    assert "fraction_train = 0.5" in the(found, "strategy", "must change").text
    lines = files["small/server_app.py"].splitlines()
    lines.insert(16, line)
    files["small/server_app.py"] = "\n".join([top, *lines])
    files["small/client_app.py"] = files["small/client_app.py"].replace(
        "app = ClientApp()", the(found, "mods", "note").write
    )
    files["pyproject.toml"] = files["pyproject.toml"].replace("train = 0.5", "train = 1.0")
    found = checked(files, rehearse=True)
    assert must_change(found) == []
    assert about(found, "mods", "ok")


def test_a_strategy_with_a_start_of_its_own_in_another_module(checked: Check) -> None:
    muster = the(checked(apps.CUSTOM_START), "Muster", "must change")
    # Above start, not below the constructor: the app calls a method of its own in between.
    assert muster.where == "small/server_app.py:19"
    assert "keeper = Muster(keeper," in muster.write
    assert "cohort_size=8" in muster.write


def test_only_the_branch_that_the_config_takes_is_judged(checked: Check) -> None:
    found = checked(apps.FACTORY)
    assert "FedProx" in the(found, "Muster", "must change").text
    assert "min_available_nodes = 12" in the(found, "strategy", "must change").text
    other = edited(apps.FACTORY, "pyproject.toml", "num-server", 'kind = "prox"\nnum-server')
    found = checked(other, run_config='kind="adam" fraction-train=1.0')
    assert "FedAdam" in the(found, "Muster", "must change").text
    assert about(found, "strategy") == []


def test_a_run_config_that_the_app_does_not_know_is_refused(checked: Check) -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        checked(apps.READY, run_config="nonsense=1")


def test_rounds_that_are_started_one_by_one_share_a_muster(checked: Check) -> None:
    muster = the(checked(apps.IN_A_LOOP), "Muster", "must change")
    assert "above line 17" in muster.text  # once, and not in each round anew
    assert muster.write.splitlines()[1].startswith("    averaging = Muster(averaging, ")


def test_a_strategy_that_is_made_in_the_loop_is_wrapped_there(checked: Check) -> None:
    made = "    averaging = FedAvg(fraction_train=fraction_train)\n"
    loop = "    for number in range(num_rounds):\n"
    files = edited(apps.IN_A_LOOP, "small/server_app.py", made + loop, loop + "  " + made)
    muster = the(checked(files), "Muster", "must change")
    assert "above line 18" in muster.text
    assert muster.write.splitlines()[1].startswith("      averaging = Muster(averaging, ")


def test_a_strategy_that_has_no_name(checked: Check) -> None:
    muster = the(checked(apps.INLINE), "Muster", "must change")
    assert "strategy = Muster(FedAvg(min_evaluate_nodes=11)," in muster.write


def test_an_app_without_a_strategy(checked: Check) -> None:
    muster = the(checked(apps.BY_HAND), "Muster", "must change")
    assert muster.where == "small/server_app.py:10"
    train = "grid.send_and_receive([Message(RecordDict(), 101, 'train')])"
    files = edited(apps.BY_HAND, "small/server_app.py", "grid.send_and_receive([])", train)
    files = imported(files, "from flwr.app import Message, RecordDict")
    assert "itself" in the(checked(files), "Muster", "must change").text


def test_an_app_that_stops_before_it_starts_anything(checked: Check) -> None:
    files = edited_server("    arrays =", "    open('/no/such/file')\n    arrays =")
    stopped = the(checked(files), "serverapp", "must change")
    assert stopped.where == "small/server_app.py:16"
    assert "FileNotFoundError" in stopped.text


# --- Muster's own checks -----------------------------------------------------------------------


def test_a_ready_app_is_ready_and_its_notes_say_what_to_know(checked: Check) -> None:
    found = checked(apps.READY)
    assert must_change(found) == []
    assert "'runs/small'" in the(found, "folder", "note").text
    assert "bsfl" in the(found, "Muster", "ok").text
    assert about(found, "deadline") == []
    found = checked(edited_server(", deadline_seconds=30", ""))
    assert the(found, "deadline", "note").write


SECURE = 'privacy=Privacy(epsilon=5.0, noise="secure")'


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("deadline_seconds=30", "privacy=Privacy(noise='seeded')", "noise"),
        ('"bsfl"', '"genie"', "oracle"),
        ('"bsfl"', '"cocs"', "min_train_nodes=1"),
        ('"bsfl"', '"bsfll"', "'bsfl'"),
        ("cohort_size=4", "cohort=4", "cohort"),
        ("deadline_seconds=30", "over_selection=0.5", "over_selection"),
        ("deadline_seconds=30", "over_selection=1.5, privacy=7", "privacy"),
        ("FedAvg()", "FedAvg(1.0, min_train_nodes=5)", "min_train_nodes = 5"),
        ("FedAvg()", "FedAvg(fraction_train=0.0)", "fraction_train = 0.0"),
        ("FedAvg()", "OldFedAvg()", "flwr.server.strategy"),
        ("averaging.start", "averaging.set_up(Privacy).start", "set_up"),
    ],
)
def test_what_muster_refuses_at_once_is_not_ready(
    old: str, new: str, told: str, checked: Check
) -> None:
    files = imported(edited_server(old, new), "from fedmuster.privacy.budget import Privacy")
    files = imported(files, "from flwr.server.strategy import FedAvg as OldFedAvg")
    problems = must_change(checked(files))
    assert any(told in f.text for f in problems), problems
    assert all(f.where.startswith("small/server_app.py:") for f in problems)


def test_muster_must_be_outermost(checked: Check) -> None:
    muster = the(checked(apps.DP_OUTSIDE), "Muster", "must change")
    assert "outermost" in muster.text


def test_noise_must_fit_the_cohort(checked: Check) -> None:
    noise = the(checked(apps.DP_INSIDE), "Muster", "must change")
    assert "num_sampled_clients = 5" in noise.text


def test_two_musters_must_not_share_a_folder(checked: Check) -> None:
    second = (
        "    tuned = Muster(FedAvg(), policy='bsfl', cohort_size=4, folder=FOLDER)\n"
        "    tuned.start(grid=grid, initial_arrays=result.arrays, num_rounds=2)\n    np.save("
    )
    files = edited_server("    np.save(", second.replace("FOLDER", "'runs/small'"))
    assert the(checked(files), "folder", "must change").where == "small/server_app.py:27"
    files = edited_server("    np.save(", second.replace("FOLDER", "'runs/tuned'"))
    assert must_change(checked(files)) == []


def test_a_federation_that_is_too_small_to_choose_from(checked: Check) -> None:
    found = checked(apps.READY, federation_config="num-supernodes=2")
    assert "2 nodes" in the(found, "cohort", "note").text
    assert about(checked(apps.READY), "cohort") == []  # the manifest says 10


# --- Clients -----------------------------------------------------------------------------------


def test_privacy_needs_both_sides(checked: Check) -> None:
    seeded = "privacy=Privacy(epsilon=5.0)"
    server_only = edited(apps.PRIVATE_SERVER_ONLY, "small/server_app.py", seeded, SECURE)
    assert "PrivateMod(" in the(checked(server_only), "privacy", "must change").write
    client_only = the(checked(apps.PRIVATE_CLIENT_ONLY), "privacy", "must change")
    assert "privacy=Privacy(" in client_only.write
    both = edited(apps.PRIVATE, "small/server_app.py", seeded, SECURE)
    assert must_change(checked(both, rehearse=True)) == []


def test_clients_without_limits_are_remarked(checked: Check) -> None:
    seeded = "privacy=Privacy(epsilon=5.0)"
    without = edited(apps.PRIVATE, "small/server_app.py", seeded, SECURE)
    assert "max_epsilon" in the(checked(without), "privacy", "note").write
    node_config = 'privacy-mechanism="laplace" privacy-max-epsilon=2.0'
    assert (
        "release-notes" in the(checked(without, node_config=node_config), "privacy", "note").write
    )
    half = 'privacy-mechanism="laplace"'
    assert the(checked(without, node_config=half), "privacy", "must change")
    limited = edited(apps.LIMITED, "small/server_app.py", seeded, SECURE)
    assert "release-notes" in the(checked(limited), "privacy", "note").write


@pytest.mark.parametrize(("named", "level"), [(False, "note"), (True, "ok")])
def test_a_rehearsal_spends_no_budget_of_clients(
    named: bool, level: str, checked: Check, tmp_path: Path
) -> None:
    limited = edited(apps.LIMITED, "small/server_app.py", "privacy=Privacy(epsilon=5.0)", SECURE)
    file = tmp_path / "releases.json"
    key = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"  # of no ledger here
    node_config = f'release-notes="{file}" privacy-ledger-key="{key}"' if named else ""
    found = checked(limited, rehearse=True, node_config=node_config)
    assert must_change(found) == []
    assert the(found, "privacy", level)
    assert "4 of 4 nodes answered" in the(found, "train", "ok").text
    assert not file.exists()


def test_mods_of_the_training_function_count(checked: Check) -> None:
    client = apps.REPORTING_CLIENT.replace("mods=[ReportingMod()]", "").replace(
        "@app.train()", "@app.train(mods=[ReportingMod()])"
    )
    assert about(checked({**apps.READY, "small/client_app.py": client}), "mods", "ok")


# --- Rehearsals --------------------------------------------------------------------------------


def test_an_app_that_fails_on_its_clients_shows_their_error(checked: Check) -> None:
    client = apps.REPORTING_CLIENT.replace('["partition-id"]', '["hospital"]')
    files = {**apps.READY, "small/client_app.py": client}
    found = checked(files, rehearse=True, nodes=4)
    failed = the(found, "client", "must change")
    assert failed.where == "small/client_app.py:15"
    assert "KeyError: 'hospital'" in failed.text
    assert 'context.node_config["hospital"]' in failed.write  # the client's own traceback
    assert "4 of 4 nodes failed" in the(found, "train", "must change").text
    assert must_change(checked(files, rehearse=True, node_config="hospital=3")) == []


def test_refused_replies_are_shown_with_the_reason(checked: Check) -> None:
    client = apps.REPORTING_CLIENT.replace("(weights + goal) / 2", "weights / 0 * goal")
    client = client.replace("(weights,) =", "np.seterr(all='ignore')\n    (weights,) =")
    found = checked({**apps.READY, "small/client_app.py": client}, rehearse=True)
    choice = the(found, "choice", "must change")
    assert "4 refused" in choice.text
    assert "not finite" in choice.write


def test_an_app_with_a_loop_of_its_own(checked: Check) -> None:
    found = checked(apps.CUSTOM_START_READY, rehearse=True, nodes=9)
    assert must_change(found) == []
    assert "random chose 8 of 9 nodes" in the(found, "choice", "ok").text
    assert about(found, "evaluate") == []  # its loop does not evaluate


# --- The manifest ------------------------------------------------------------------------------


def test_the_manifest(checked: Check, tmp_path: Path) -> None:
    found = checked(edited(apps.READY, "pyproject.toml", 'publisher = "somebody"', ""))
    assert "publisher" in the(found, "manifest", "must change").text
    found = checked(edited(apps.READY, "pyproject.toml", ', "fedmuster[flower]"', ""))
    assert "fedmuster[flower]" in the(found, "dependencies", "note").write
    found = checked(edited(apps.READY, "pyproject.toml", "flwr>=1.39", "flwr<1.30"))
    assert "flwr<1.30" in the(found, "flower", "must change").text
    (tmp_path / "app" / "LICENSE").unlink()
    without = {name: text for name, text in apps.READY.items() if name != "LICENSE"}
    assert the(checked(without), "licence", "must change")
    found = checked(edited(apps.READY, "pyproject.toml", 'clientapp = "small.client_app:app"', ""))
    assert "clientapp" in the(found, "manifest", "must change").text


def test_no_folder_and_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        list(check(tmp_path / "nowhere"))
    lay_out({"pyproject.toml": "[project"}, tmp_path)
    with pytest.raises(ConfigError, match="pyproject"):
        list(check(tmp_path))


def test_the_versions_are_those_of_the_extra() -> None:
    manifest = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(manifest.read_text())["project"]["optional-dependencies"]
    (wanted,) = (Requirement(line) for line in extras["flower"] if "flwr" in line)
    assert wanted.specifier == SUPPORTED


@pytest.mark.parametrize(
    ("name", "mended"),
    [("a01_torch", "a01-torch"), ("1st", "app-1st"), ("_", "app"), ("a" * 40, "a" * 32)],
)
def test_a_name_that_flower_refuses(name: str, mended: str, checked: Check) -> None:
    refused = the(
        checked(edited(apps.READY, "pyproject.toml", '"small"', f'"{name}"')),
        "manifest",
        "must change",
    )
    assert refused.where == "pyproject.toml:2"
    assert refused.write == f'name = "{mended}"'
    assert is_valid_name(mended)


@pytest.mark.parametrize(
    "name", ["small", "a-1", "a-", "-a", "1a", "a_b", "a.b", "é1", "", "a" * 32, "a" * 33]
)
def test_names_are_judged_as_flower_judges_them(name: str) -> None:
    flowers = pytest.importorskip("flwr.supercore.utils").is_valid_name
    assert is_valid_name(name) is flowers(name)[0]


# --- Older APIs, and imports that go wrong -----------------------------------------------------


def test_the_older_api_is_named(checked: Check) -> None:
    old = about(checked(apps.LEGACY), "older API", "must change")
    assert "server_fn" in old[0].text
    assert "client_fn" in old[1].text
    assert "strategy.start(" in old[0].write
    assert "@app.train()" in old[1].write
    main = "app = ServerApp()\n\n@app.main()\ndef main(grid, context):\n    server_fn(context)\n"
    server = apps.LEGACY["small/server_app.py"].replace(
        "app = ServerApp(server_fn=server_fn)", main
    )
    found = checked({**apps.QUICKSTART, "small/server_app.py": server})
    assert "flwr.server.strategy" in the(found, "Muster", "must change").text


def test_scripts_of_the_oldest_api_have_no_manifest(checked: Check) -> None:
    found = checked(apps.SCRIPTS)
    assert the(found, "manifest", "must change").write.startswith("[project]")
    assert the(found, "older API", "must change").where == "server.py:6"


def test_a_missing_package_is_not_fetched_from_strangers(checked: Check, tmp_path: Path) -> None:
    missing = the(checked(apps.BROKEN_IMPORT), "clientapp", "must change")
    assert missing.where == "small/client_app.py:3"
    assert missing.write.splitlines()[-1] == f"pip install -e {tmp_path / 'app'}"
    assert "no-such-package-anywhere" in missing.write
    listed = edited(
        apps.BROKEN_IMPORT,
        "pyproject.toml",
        '["flwr>=1.39"',
        '["no-such_package.anywhere>2", "flwr"',
    )
    missing = the(checked(listed), "clientapp", "must change")
    assert missing.write == "pip install 'no-such_package.anywhere>2'"


def test_imports_that_go_wrong(checked: Check) -> None:
    syntax = the(checked(apps.BROKEN_SYNTAX), "serverapp", "must change")
    assert syntax.where == "small/server_app.py:8"
    kind = the(checked(apps.NOT_AN_APP), "serverapp", "must change")
    assert "a str" in kind.text
