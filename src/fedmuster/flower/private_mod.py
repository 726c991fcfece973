"""The mod that lets nothing leave a client but what its budget was debited for."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from logging import ERROR, WARNING
from typing import Any, Final

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
    UserConfig,
)
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log
from numpy.typing import NDArray

from fedmuster.core.config import require
from fedmuster.core.errors import ConfigError, DataError, FedmusterError, LedgerError, StateError
from fedmuster.flower.client_vault import ClientVault, VaultContents, is_new_to
from fedmuster.flower.receipt_check import GrantReceipt, chosen_key, log_size_in
from fedmuster.flower.release_limits import (
    LIMIT_KEYS,
    NODE_CONFIG_EXAMPLE,
    Limits,
    Payment,
    chosen_limits,
)
from fedmuster.flower.wire import (
    Ask,
    Facts,
    HeldReceipt,
    PrivacyGrant,
    Question,
    Release,
    Report,
    finite_metric,
    strip,
)
from fedmuster.privacy.ledger.receipts import MissingProofError
from fedmuster.privacy.mechanisms import Mechanism
from fedmuster.privacy.randomness import secure_bytes

Arrays = Mapping[str, NDArray[Any]]

NOTES_KEY: Final = "release-notes"
"""Where ``node_config`` holds the path of a client's releases, unless the app says otherwise."""
_CATEGORIES: Final = (MessageType.EVALUATE, MessageType.QUERY)
_FAILED: Final = (
    "fedmuster: the ClientApp failed, or what it trained cannot be released; its own log says why"
)
_UNREADABLE: Final = "fedmuster: this message cannot be answered; the client's own log says why"


class PrivateMod:
    """A Flower mod that makes what a client sends private, within limits of the client's own.

    It stands first, so that it is the last to touch what leaves, whatever other mods add::

        private = PrivateMod(mechanism=Gaussian(clip=1.0, delta=1e-6), max_epsilon=4.0)
        app = ClientApp(mods=[private, ReportingMod()])

    Only a train message that brings a grant is answered with an update: the difference between the
    trained and the received model, all its floating-point arrays as one vector, clipped and noisy
    (``fedmuster.privacy.mechanisms``) with the operating system's randomness, and added to the
    received model again. Other arrays go back as they came. The trained model, metrics, whatever
    else the app or a mod put into its reply, and the texts of exceptions stay here. Before a
    release leaves, its round and its cost are on record (:class:`ClientVault`): no round of a run
    is released twice, and a crash may cost budget, but nothing leaves unpaid.

    **With limits** a dishonest server gets no more either: all releases together, in all runs and
    whatever the server grants, are (``max_epsilon``, δ)-DP by ``mechanism``. The client does not
    take the mechanism from a grant: a grant of another one is refused, and so is an amount that
    would pass the limit. ``node_config`` holds the limits of one node, which count before those in
    the code: "privacy-mechanism", as text such as "gaussian:clip=1.0,delta=1e-6", and
    "privacy-max-epsilon".

    **Without limits** the promise is the server's: mechanism, clip and amount come from its grants.
    An honest server debits what it grants, and ``fedmuster ledger audit`` shows it. A dishonest one
    grants a huge amount and reads the update. A warning says so.

    **The server's ledger** is held to what it has said: a grant brings a receipt, which proves that
    the debit is in the ledger and that nothing that the client's last receipt proved was changed
    since (``docs/ledger.md``). What contradicts it is refused, and kept as ``NAME.refused`` beside
    the client's file.

    What is not hidden, with or without: ``keep_metrics``, which must be public (the number of
    samples is, here); how long the client took; how often it took part; and that an app failed. An
    update that is not finite becomes noise around nothing.

    Args:
        mechanism: the only mechanism that this client releases by, as an object or as text; δ
            converts between ρ and ε here, and need not be the server's.
        max_epsilon: the most that all releases of this client amount to, for ever; of each
            coordinate by itself with ``Laplace(mode="per-coordinate")``.
        ledger_key: the public key of the server's ledger (its file NAME.vkey): every grant needs a
            receipt signed with it. None accepts the first ledger that comes, and later no other.
        file_required: whether limits need a file, so that they outlast Flower's run and the
            SuperNode. False is for simulated nodes, which have no disk: then the total is counted
            anew in every run of Flower.
        keep_metrics: the metrics of train replies that are sent, because the strategy weighs
            updates by them.
        unprotected: the categories of messages, "evaluate" or "query", whose replies leave as they
            are. Nobody pays for these, so by default they are refused.
        notes_key: where ``node_config`` holds the absolute path of the file with the released
            rounds and totals, one for each SuperNode. Without it they live in the context, which is
            lost when Flower's run ends or the SuperNode stops.
    """

    def __init__(
        self,
        *,
        mechanism: Mechanism | str | None = None,
        max_epsilon: float | None = None,
        ledger_key: str | None = None,
        file_required: bool = True,
        keep_metrics: Sequence[str] = ("num-examples",),
        unprotected: Sequence[str] = (),
        notes_key: str = NOTES_KEY,
    ) -> None:
        self.mechanism = mechanism
        self.max_epsilon = max_epsilon
        self.ledger_key = ledger_key
        self.file_required = file_required
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
        require(isinstance(file_required, bool), self, "file_required", "true or false")
        chosen_key(ledger_key, {})
        self._limits: Limits | None = None
        if mechanism is not None and max_epsilon is not None:
            self._limits = Limits(mechanism, max_epsilon)

    def limits(self, node_config: UserConfig) -> Limits | None:
        """The limits at a node; None where there are none.

        Raises:
            ConfigError: half of a limit is missing, or one of them is no limit.
        """
        if self._limits is not None and node_config.keys().isdisjoint(LIMIT_KEYS):
            return self._limits
        return chosen_limits(self.mechanism, self.max_epsilon, node_config)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Let the app train, and send what was paid for."""
        category = message.metadata.message_type.partition(".")[0]
        if category in self.unprotected:
            return call_next(message, context)
        try:
            if _question_in(message) is not None:
                vault = ClientVault(context.state, self._file(context))
                return _facts_alone(message, context, call_next, vault)
            if category != MessageType.TRAIN:
                raise StateError(
                    f"a reply to this {category} message would tell of the client's data and "
                    f"nobody has paid for it; set fraction_{category} to 0, or, if replies are "
                    f'public, write PrivateMod(unprotected=["{category}"])'
                )
            ask, grant = _granted(message.content)
            limits = self.limits(context.node_config)
            mechanism = _mechanism(grant, limits)
            payment = Payment.of(ask, mechanism, grant.amount, limits)
            mechanism.noise_scale(payment.amount)  # may know amounts for which it has no noise
            vault = self._vault(context, limits)
            receipt = GrantReceipt(
                grant.receipt, payment, chosen_key(self.ledger_key, context.node_config)
            )
            contents = vault.contents()
            payment.on(contents)  # do not train for what will be refused
            try:
                receipt.on(contents)
            except MissingProofError as error:
                return _asks_for_proof(message, contents, error)
            except LedgerError:
                vault.keep_evidence(receipt.text)
                raise
            model = _one_model(message.content)
        except FedmusterError as error:  # of ours, and before the app has seen its data
            return _refusal(message, error)
        except Exception as error:  # arrays that cannot be read, for example
            log(ERROR, "fedmuster: nothing was released", exc_info=error)
            return _error(message, _UNREADABLE)
        strip(message.content)
        try:
            reply = call_next(message, context)
            update = _update(model, _one_model(reply.content))
            content = self._told(reply.content)
            (key,) = reply.content.array_records
            try:
                vault.change(lambda before: receipt.on(payment.on(before)))  # before it leaves
            except FedmusterError as error:  # of ours; it knows nothing of the data
                return _refusal(message, error)
            content[key] = _moved(model, mechanism.release(update, payment.amount, secure_bytes))
        except Exception as error:  # whatever an app may raise: its text may quote its data
            log(ERROR, "fedmuster: nothing was released", exc_info=error)
            return _error(message, _FAILED, code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
        Release(run=ask.run, round=ask.round, amount=grant.amount).into(content)
        HeldReceipt(log_size=log_size_in(vault.contents())).into(content)
        return Message(content, reply_to=message)

    def _vault(self, context: Context, limits: Limits | None) -> ClientVault:
        path = self._file(context)
        if limits is None and is_new_to(context.state):
            _warn_of_no_limits()
        if limits is not None and path is None and self.file_required:
            raise ConfigError(
                "PrivateMod: a limit that does not last is no limit: start the SuperNode with "
                f"--node-config '{self.notes_key}=\"/var/lib/node/releases.json\"', a file of its "
                "own; for simulated nodes write PrivateMod(…, file_required=False)",
                key=(self.notes_key,),
            )
        return ClientVault(context.state, path)

    def _file(self, context: Context) -> str | None:
        path = context.node_config.get(self.notes_key)
        return None if path is None else str(path)

    def _told(self, content: RecordDict) -> RecordDict:
        """What a reply tells beside the model: public metrics, and how long the app took."""
        told = RecordDict()
        for key, metrics in content.metric_records.items():
            kept = [name for name in self.keep_metrics if name in metrics]
            finite = [name for name in kept if finite_metric(metrics, name) is not None]
            told[key] = MetricRecord({name: metrics[name] for name in finite})
        report = Report.of(content)
        if report is not None:
            replace(report, signals={}).into(told)
        return told


def _granted(content: RecordDict) -> tuple[Ask, PrivacyGrant]:
    ask = Ask.of(content)
    if ask is None or ask.grant is None:
        raise StateError(
            "no grant came with the message, so nothing is released: give the server's Muster a "
            "privacy=Privacy(...)"
        )
    return ask, ask.grant


def _mechanism(grant: PrivacyGrant, limits: Limits | None) -> Mechanism:
    """The client's own mechanism, where it has one."""
    granted = grant.parsed_mechanism()
    if limits is None:
        return granted
    limits.check(granted)
    return limits.mechanism


@cache
def _warn_of_no_limits() -> None:
    """Once in a process, and of a run at its first release, for which a process may be new."""
    log(
        WARNING,
        "fedmuster: this client has no limits of its own: mechanism, clip and amount are what the "
        "server grants, so the promise holds if the server is honest. Write PrivateMod(mechanism=…,"
        " max_epsilon=…), or start the SuperNode with --node-config '%s'",
        NODE_CONFIG_EXAMPLE,
    )


def _facts_alone(
    message: Message, context: Context, call_next: ClientAppCallable, vault: ClientVault
) -> Message:
    """The answer which client this is, without anything else that the app may have added."""
    try:
        facts = Facts.of(call_next(message, context).content)
        if facts is not None:
            with suppress(FedmusterError):  # a damaged file is refused when there is a grant
                facts = replace(facts, log_size=log_size_in(vault.contents()))
    except Exception as error:  # as above
        log(ERROR, "fedmuster: the server asked who this client is", exc_info=error)
        facts = None
    if facts is None:
        return _error(message, "fedmuster: this ClientApp has no ReportingMod, or it failed")
    content = RecordDict()
    facts.into(content)
    return Message(content, reply_to=message)


def _asks_for_proof(message: Message, held: VaultContents, error: MissingProofError) -> Message:
    """No error, which could bring no data: the server hears what the next receipt must prove."""
    log(WARNING, "fedmuster: nothing was released: %s", error)
    content = RecordDict()
    HeldReceipt(log_size=log_size_in(held)).into(content)
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
            with np.errstate(over="ignore"):  # a server may send numbers without room for more
                array = np.clip(array + change, -most, most).astype(array.dtype)
        moved[name] = Array(np.asarray(array))
    return ArrayRecord(moved)


def _refusal(message: Message, error: FedmusterError) -> Message:
    log(WARNING, "fedmuster: nothing was released: %s", error)
    return _error(message, f"fedmuster: {error}")


def _error(
    message: Message, reason: str, *, code: int = ErrorCode.MOD_FAILED_PRECONDITION
) -> Message:
    return Message(Error(code, reason), reply_to=message)


def _question_in(message: Message) -> Question | None:
    try:
        return Question.of(message.content)
    except DataError:  # not of ours
        return None
