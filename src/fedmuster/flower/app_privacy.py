"""What ``fedmuster flower check`` says of an app's privacy, and where rehearsed releases are noted.

The promise of Muster and the mods of the ClientApp must fit together.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedmuster.core.errors import ConfigError
from fedmuster.flower.app_check import Finding
from fedmuster.flower.in_process import Node
from fedmuster.flower.muster import Muster
from fedmuster.flower.private_mod import NOTES_KEY, PrivateMod
from fedmuster.flower.receipt_check import LEDGER_KEY
from fedmuster.flower.release_limits import NODE_CONFIG_EXAMPLE

_MODS = "app = ClientApp(mods=[PrivateMod(…), ReportingMod()])"


def judge_privacy(
    musters: Sequence[Muster], mods: Sequence[PrivateMod], node_config: dict[str, Any]
) -> Iterator[Finding]:
    """Judge the promise of the app's Musters, and the limits of its clients."""
    promised = any(muster.settings.privacy is not None for muster in musters)
    if promised and not mods:
        text = "Muster promises privacy, and the ClientApp has no PrivateMod"
        yield Finding("must change", "privacy", text, write=_MODS)
    if mods and musters and not promised:
        text = "the ClientApp has a PrivateMod, which sends nothing without a promise of Muster"
        yield Finding("must change", "privacy", text, write="Muster(…, privacy=Privacy(…))")
    for mod in mods:
        yield from _judge_limits(mod, node_config)


def _judge_limits(mod: PrivateMod, node_config: dict[str, Any]) -> Iterator[Finding]:
    try:
        limits = mod.limits(node_config)
    except ConfigError as error:
        yield Finding("must change", "privacy", str(error))
        return
    file = f"--node-config '{mod.notes_key}=\"/var/lib/node/releases.json\"'"
    if limits is None:
        text = (
            "clients have no limits of their own: mechanism and amounts are what the server "
            "grants, so the promise holds if the server is honest"
        )
        write = f"PrivateMod(mechanism=…, max_epsilon=…)\n--node-config '{NODE_CONFIG_EXAMPLE}'"
        yield Finding("note", "privacy", text, write=write)
    elif mod.notes_key not in node_config and mod.file_required:
        text = "each node needs a file of its own, in which its releases are counted"
        yield Finding("note", "privacy", text, write=file)
    elif mod.notes_key not in node_config:
        text = "a node without a file for its releases counts them anew in every run of Flower"
        yield Finding("note", "privacy", text, write=file)
    else:
        text = f"clients release ε = {limits.max_epsilon:g} at most, by {limits.mechanism.name}"
        yield Finding("ok", "privacy", text)


def note_elsewhere(nodes: Sequence[Node], mods: Sequence[PrivateMod], folder: Path) -> None:
    """Give each node a new file in ``folder``: a rehearsal must not spend a client's budget.

    The ledger of a rehearsal is thrown away, so its key cannot be the one that clients demand.
    """
    for mod in mods:
        mod.ledger_key = None
    for node in nodes:
        node.config.pop(LEDGER_KEY, None)
        for key in {NOTES_KEY, *(mod.notes_key for mod in mods)}:
            if mods or key in node.config:
                file = folder / f"releases-{node.node_id}.json"
                file.unlink(missing_ok=True)
                node.config[key] = str(file)
