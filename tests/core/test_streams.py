import os
import subprocess
import sys

import pytest

from fedmuster.core.streams import POLICY, WORLD, stream


def test_same_key_same_bits() -> None:
    assert stream(3, POLICY, 9).bytes(16) == stream(3, POLICY, 9).bytes(16)


def test_every_part_of_the_key_matters() -> None:
    streams = [
        stream(3, POLICY, 9),
        stream(4, POLICY, 9),
        stream(3, WORLD, 9),
        stream(3, POLICY, 8),
        stream(3, POLICY, 9, 0),
    ]
    assert len({generator.bytes(16) for generator in streams}) == len(streams)


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_streams_do_not_depend_on_the_process(hash_seed: str) -> None:
    code = "from fedmuster.core.streams import *; print(stream(3, POLICY, 9).bytes(8).hex())"
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == stream(3, POLICY, 9).bytes(8).hex()
