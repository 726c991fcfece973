"""What importing fedmuster costs."""

import json
import subprocess
import sys

HEAVY = ["matplotlib", "scipy", "pyarrow", "rich", "torch", "pandas"]


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(out.stdout.splitlines()[-1]))


def test_import_loads_nothing_heavier_than_numpy() -> None:
    code = "import fedmuster; fedmuster.BSFL(); fedmuster.Selector; import fedmuster.worlds"
    loaded = loaded_by(code)
    assert "numpy" in loaded
    assert loaded.isdisjoint([*HEAVY, "click"])


def test_help_does_not_even_load_numpy() -> None:
    code = """
from fedmuster.cli import main
import sys
sys.argv = ["fedmuster", "--help"]
try:
    main()
except SystemExit as stop:
    assert stop.code == 0
"""
    assert loaded_by(code).isdisjoint([*HEAVY, "numpy"])


def test_every_public_name_is_there() -> None:
    import fedmuster

    for name in fedmuster.__all__:
        assert getattr(fedmuster, name) is not None
    assert set(dir(fedmuster)) == set(fedmuster.__all__)
