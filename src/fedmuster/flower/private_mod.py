"""The mod that lets nothing leave a client but what its budget was debited for."""

import json
from collections.abc import Mapping, Sequence
from logging import ERROR
from pathlib import Path
from typing import Any, Final

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log
from numpy.typing import NDArray

from fedmuster.core.config import require
from fedmuster.core.errors import DataError, FedmusterError, StateError
from fedmuster.core.files import write_file
from fedmuster.flower.wire import (
    Ask,
    Facts,
    PrivacyGrant,
    Question,
    Release,
    Report,
    finite_metric,
    strip,
)
from fedmuster.privacy.mechanisms import Mechanism
from fedmuster.privacy.randomness import secure_bytes

_RECORD: Final = "fedmuster.releases"


class ReleaseNotes:
    """The last round of each run in which the client released an update: none is released twice.

    The ``state`` of a ClientApp's context lasts as long as Flower's run and the SuperNode do; a
    ``file`` on the client's disk lasts longer.
    """

    def __init__(self, state: RecordDict, file: Path | None = None) -> None:
        self._state = state
        self._file = file

    def last_round(self, run: str) -> int:
        """The last released round; 0 where there is none."""
        noted = self._state.config_records.get(_RECORD, ConfigRecord()).get(run, 0)
        if not isinstance(noted, int):
            raise StateError(f"context.state: {_RECORD!r} of {run!r} is {noted!r}, not a round")
        return max(noted, self._in_file().get(run, 0))

    def note(self, run: str, round_: int) -> None:
        """Note a release; it is on disk, where there is a file, when this returns."""
        if self._file is not None:
            write_file(self._file, json.dumps({**self._in_file(), run: round_}).encode())
        if _RECORD not in self._state.config_records:
            self._state[_RECORD] = ConfigRecord()
        self._state.config_records[_RECORD][run] = round_

    def _in_file(self) -> dict[str, int]:
        if self._file is None or not self._file.exists():
            return {}
        try:
            noted = json.loads(self._file.read_bytes())
        except (OSError, ValueError) as error:
            raise StateError(f"{self._file} cannot be read as release notes: {error}") from None
        if not isinstance(noted, dict) or not all(isinstance(n, int) for n in noted.values()):
            raise StateError(f"{self._file} holds no release notes")
        return noted


Arrays = Mapping[str, NDArray[Any]]

_CATEGORIES: Final = (MessageType.EVALUATE, MessageType.QUERY)
_FAILED: Final = (
    "fedmuster: the ClientApp failed, or what it trained cannot be released; its own log says why"
)


class PrivateMod:
    """A Flower mod that makes what a client sends private, for what the server's ledger debited.

    It stands first, so that it is the last to touch what leaves, whatever other mods add::

        app = ClientApp(mods=[PrivateMod(), ReportingMod()])

    Only a train message that brings a grant is answered with an update: the difference between the
    trained and the received model, all its floating-point arrays as one vector, clipped and noisy
    (``fedmuster.privacy.mechanisms``) with the operating system's randomness, and added to the
    received model again. Other arrays go back as they came. The trained model, metrics, whatever
    else the app or a mod put into its reply, and the texts of exceptions stay here. That a round
    was released is noted before it leaves, and no round of a run is released twice.

    What is not hidden: ``keep_metrics``, which must be public (the number of samples is, here);
    how long the client took; and that an app failed. An update that is not finite becomes noise
    around nothing. The mod believes the server that it debited what it grants: ``fedmuster ledger
    audit`` shows it.

    Args:
        keep_metrics: the metrics of train replies that are sent, because the strategy weighs
            updates by them.
        unprotected: the categories of messages, "evaluate" or "query", whose replies leave as they
            are. Nobody pays for these, so by default they are refused.
        notes_key: where ``node_config`` holds the path of a file for the notes on releases. Without
            it they live in the context, which is lost when Flower's run ends or the SuperNode
            stops; then the server's ledger alone knows which rounds were released.
    """

    def __init__(
        self,
        *,
        keep_metrics: Sequence[str] = ("num-examples",),
        unprotected: Sequence[str] = (),
        notes_key: str = "release-notes",
    ) -> None:
        self.keep_metrics = tuple(keep_metrics)
        self.unprotected = tuple(unprotected)
        self.notes_key = notes_key
        of_names = not isinstance(keep_metrics, str) and all(
            isinstance(name, str) for name in self.keep_metrics
        )
        require(of_names, self, "keep_metrics", "a list of names of metrics")
        known = not isinstance(unprotected, str) and set(self.unprotected) <= set(_CATEGORIES)
        require(known, self, "unprotected", 'a list of "evaluate" and "query", or of neither')
        require(isinstance(notes_key, str), self, "notes_key", "a key of node_config")

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Let the app train, and send what was paid for."""
        category = message.metadata.message_type.partition(".")[0]
        if category in self.unprotected:
            return call_next(message, context)
        if category != MessageType.TRAIN and _question_in(message) is None:
            return _error(
                message,
                f"fedmuster: a reply to this {category} message would tell of the client's data "
                f"and nobody has paid for it; set fraction_{category} to 0, or, if replies are "
                f'public, write PrivateMod(unprotected=["{category}"])',
            )
        try:
            if _question_in(message) is not None:
                return _facts_alone(message, context, call_next)
            ask, grant, mechanism = _granted(message.content)
            path = context.node_config.get(self.notes_key)
            notes = ReleaseNotes(context.state, None if path is None else Path(str(path)))
            if ask.round <= notes.last_round(ask.run):
                raise StateError(
                    f"round {ask.round} of run {ask.run} was released, or is over: nothing is "
                    "released twice"
                )
            model = _one_model(message.content)
        except FedmusterError as error:  # of ours, and before the app has seen its data
            return _error(message, f"fedmuster: {error}")
        strip(message.content)
        try:
            reply = call_next(message, context)
            report = Report.of(reply.content)
            update = _update(model, _one_model(reply.content))
            notes.note(ask.run, ask.round)  # before anything leaves
            released = mechanism.release(update, grant.amount, secure_bytes)
        except Exception as error:  # whatever an app may raise: its text may quote its data
            log(ERROR, "fedmuster: nothing was released", exc_info=error)
            return _error(message, _FAILED, code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
        content = RecordDict()
        (key,) = reply.content.array_records
        content[key] = _moved(model, released)
        for name, metrics in reply.content.metric_records.items():
            content[name] = self._kept(metrics)
        Release(run=ask.run, round=ask.round, amount=grant.amount).into(content)
        if report is not None:
            Report(
                compute_seconds=report.compute_seconds, trained_before=report.trained_before
            ).into(content)
        return Message(content, reply_to=message)

    def _kept(self, metrics: MetricRecord) -> MetricRecord:
        kept = [name for name in self.keep_metrics if name in metrics]
        finite = [name for name in kept if finite_metric(metrics, name) is not None]
        return MetricRecord({name: metrics[name] for name in finite})


def _granted(content: RecordDict) -> tuple[Ask, PrivacyGrant, Mechanism]:
    ask = Ask.of(content)
    if ask is None or ask.grant is None:
        raise StateError(
            "no grant came with the message, so nothing is released: give the server's Muster a "
            "privacy=Privacy(...)"
        )
    mechanism = ask.grant.parsed_mechanism()
    mechanism.noise_scale(ask.grant.amount)  # complains of amounts that no ledger knows
    return ask, ask.grant, mechanism


def _facts_alone(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """The answer which client this is, without anything else that the app may have added."""
    try:
        facts = Facts.of(call_next(message, context).content)
    except Exception as error:  # as above
        log(ERROR, "fedmuster: the server asked who this client is", exc_info=error)
        facts = None
    if facts is None:
        return _error(message, "fedmuster: this ClientApp has no ReportingMod, or it failed")
    content = RecordDict()
    facts.into(content)
    return Message(content, reply_to=message)


def _one_model(content: RecordDict) -> Arrays:
    if len(content.array_records) != 1:
        raise DataError(f"{len(content.array_records)} ArrayRecords, expected one")
    (record,) = content.array_records.values()
    return {name: array.numpy() for name, array in record.items()}


def _update(old: Arrays, new: Arrays) -> NDArray[np.float64]:
    """What training changed: all floating-point arrays in one vector, in the order of ``old``."""
    if set(old) != set(new):
        raise DataError("the reply's arrays have other names than the message's")
    changes = []
    for name, array in old.items():
        if (array.dtype.kind, array.shape) != (new[name].dtype.kind, new[name].shape):
            raise DataError(f"array {name!r} came back with another shape or kind of numbers")
        if array.dtype.kind == "f":
            with np.errstate(invalid="ignore", over="ignore"):  # told of below
                changes.append(np.subtract(new[name], array, dtype=np.float64).ravel())
        elif array.dtype.kind not in "iub":
            raise DataError(f"array {name!r} holds {array.dtype}, for which there is no noise")
    update = np.concatenate([np.zeros(0), *changes])
    if update.size == 0:
        raise DataError("the model has no floating-point array, so there is nothing to release")
    # That training diverged would tell of the data too: noise around nothing is sent.
    return update if np.isfinite(update).all() else np.zeros_like(update)


def _moved(old: Arrays, update: NDArray[np.float64]) -> ArrayRecord:
    """The old model plus the update, in the old types; arrays of integers stay."""
    moved, start = {}, 0
    for name, array in old.items():
        if array.dtype.kind == "f":
            change = update[start : start + array.size].reshape(array.shape)
            start += array.size
            most = np.finfo(array.dtype).max  # of half precision, noise may ask for more
            array = np.clip(array + change, -most, most).astype(array.dtype)
        moved[name] = Array(np.asarray(array))
    return ArrayRecord(moved)


def _error(
    message: Message, reason: str, *, code: int = ErrorCode.MOD_FAILED_PRECONDITION
) -> Message:
    return Message(Error(code, reason), reply_to=message)


def _question_in(message: Message) -> Question | None:
    try:
        return Question.of(message.content)
    except DataError:  # not of ours
        return None
