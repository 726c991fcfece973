"""Markers around the real functions: what they do stays as it is, and is told to the board."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tests.faults.board import Board, Point

from fedmuster.core.records import IntArray
from fedmuster.experiments import run
from fedmuster.experiments.journal import Journal
from fedmuster.privacy.budget import Budget, Grant
from fedmuster.privacy.ledger.guards import Anchor
from fedmuster.training.aggregation import Aggregation

RELEASES: Final = "releases.jsonl"
"""What has left the clients of a run: a line for each update."""

_COMMIT_SECONDS: Final = 0.02  # these runs are short, and shall have several checkpoints


def wrap(owner: object, name: str, wrapper: Callable[..., Any]) -> None:
    """Let ``wrapper(original, …)`` stand in for ``owner.name``."""
    original = getattr(owner, name)

    def wrapped(*given: Any, **named: Any) -> Any:
        return wrapper(original, *given, **named)

    setattr(owner, name, wrapped)


def watch(board: Board, releases: Path) -> None:
    """In a child: publish every step from now on, and log whatever is released."""
    _watch_ledger(board)
    _watch_journal(board)
    log_releases(releases, board)

    def apply(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        with board.at(Point.AGGREGATION):
            return original(*given, **named)

    wrap(Aggregation, "apply", apply)


def _watch_ledger(board: Board) -> None:
    def start(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        with board.at(Point.OPENING):
            return original(*given, **named)

    def debit(original: Callable[..., Any], self: Budget, round_: int, clients: IntArray) -> Any:
        board.begin_round(round_)
        with board.at(Point.DEBIT_CHECKS):
            return original(self, round_, clients)

    def advance(original: Callable[..., Any], *given: Any) -> Any:
        debits = board.point.stage == "debit"
        if debits:
            board.enter(Point.DEBIT_ANCHORS)
        noted = original(*given)
        if debits:
            board.enter(Point.DEBIT_PAID)
        return noted

    wrap(Budget, "__init__", start)
    wrap(Budget, "debit", debit)
    wrap(Anchor, "advance", advance)


def _watch_journal(board: Board) -> None:
    def append(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        with board.at(Point.CHECKPOINT_WRITES):
            return original(*given, **named)

    class Watched(sqlite3.Connection):
        """Of ledgers and journals alike."""

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            commits = sql == "COMMIT" and board.point.stage == "debit"
            if commits:
                board.enter(Point.DEBIT_COMMITS)
            cursor = super().execute(sql, *values)
            if commits:
                board.enter(Point.DEBIT_COMMITTED)
            return cursor

        def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("UPDATE") and board.point.stage == "debit":
                board.enter(Point.DEBIT_WRITES)
            return super().executemany(sql, *values)

        def __exit__(self, *error: Any) -> Any:
            if board.point.stage == "checkpoint":
                board.enter(Point.CHECKPOINT_COMMITS)
            return super().__exit__(*error)

    def connect(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return original(*given, factory=Watched, **named)

    wrap(Journal, "append", append)
    wrap(sqlite3, "connect", connect)
    vars(run)["_COMMIT_SECONDS"] = _COMMIT_SECONDS


def log_releases(path: Path, board: Board | None = None) -> None:
    """In a child: what is released counts as out before the server has seen it."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    board = Board() if board is None else board

    def release(
        original: Callable[..., Any],
        self: Budget,
        grant: Grant,
        clients: IntArray,
        updates: NDArray[np.float32],
    ) -> Any:
        with board.at(Point.RELEASE_NOISE):
            released = original(self, grant, clients, updates)
            board.enter(Point.RELEASE_OUT)
            lines = (
                json.dumps([grant.round, client, hashlib.sha256(row.tobytes()).hexdigest()])
                for client, row in zip(clients.tolist(), released, strict=True)
            )
            os.write(log, "".join(f"{line}\n" for line in lines).encode())
            return released

    wrap(Budget, "release", release)
