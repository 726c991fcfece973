"""Write a file so that a crash leaves either the old one or the new one, whole."""

import os
from pathlib import Path


def write_file(path: Path, image: bytes) -> None:
    """Write to a temporary name, sync, rename, sync the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(image)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the rename itself
    finally:
        os.close(directory)
