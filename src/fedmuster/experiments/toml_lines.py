"""On which line of a TOML text a key stands, which :mod:`tomllib` does not say."""

import re
from collections import Counter

Key = tuple[str, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
_ASSIGNMENT = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)


def line_of(text: str, key: Key) -> int | None:
    """The line (from 1) of ``key``, or of the nearest table above it that is written out.

    The tables of an array are counted from 0: the second ``[[policy]]`` is ``("policy", "1")``.

    Example:
        >>> line_of('rounds = 10\\n[world]\\nname = "x"\\n', ("world", "name"))
        3
        >>> line_of('rounds = 10\\n[world]\\nname = "x"\\n', ("world", "spread", "sd"))
        2
        >>> line_of("[[policy]]\\n[[policy]]\\n[policy.solver]\\n", ("policy", "1", "solver"))
        3
    """
    lines: dict[Key, int] = {}
    table: Key = ()
    seen: Counter[Key] = Counter()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _split(header[2])
            for length in range(1, len(table)):  # [policy.solver] belongs to the last [[policy]]
                if array := seen[table[:length]]:
                    table = (*table[:length], str(array - 1), *table[length:])
            if header[1] == "[[":
                seen[table] += 1
                table = (*table, str(seen[table] - 1))
            lines.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            lines.setdefault((*table, *_split(assignment[1])), number)
    for length in range(len(key), 0, -1):
        if key[:length] in lines:
            return lines[key[:length]]
    return None


def _split(dotted: str) -> Key:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
