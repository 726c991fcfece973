"""A FLARE filter that makes what a client sends private, within limits of the client's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter, FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLMetaKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.job_config.defs import FilterType

from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import configured, require, to_table
from fedmuster.core.errors import DataError, StateError
from fedmuster.nvflare.grants import Grant
from fedmuster.nvflare.replies import like, numbers_of, steps_of
from fedmuster.privacy.ledger import Ledger
from fedmuster.privacy.mechanisms import MECHANISMS, Mechanism, require_own_currency
from fedmuster.privacy.randomness import secure_bytes
from fedmuster.privacy.schedules import to_units

_TASK: Final = "fedmuster_private_task"


class _Task(NamedTuple):
    grant: Grant
    model: Mapping[str, Any]


class PrivateFilter(Filter):
    """Lets an update leave only if it is paid for, clipped and noisy.

    It stands on both ways, which one line brings about::

        job.to_clients(PrivateFilter(mechanism="gaussian:clip=1.0,delta=1e-6", max_epsilon=4.0,
                                     ledger="/var/lib/site/releases.sqlite"), tasks=["train"])

    Work without a grant is refused before training. Of what was trained, the difference from the
    received model leaves, all its floating-point parameters as one vector, clipped and noisy by
    ``mechanism`` with the operating system's randomness. Before it leaves, its cost is on record in
    the client's own ledger. That keeps all releases together below ``max_epsilon`` for ever, in all
    runs and whatever a server grants, and no round of a run is released twice. Metrics and meta
    data stay here, but for the number of steps, which is not hidden; so do texts of errors.

    Other ways out of a client are not closed by a filter: leave FLARE's streaming of metrics and
    logs out of a private job, and give no task but training a private client's data.

    Args:
        mechanism: the only one that this client releases by, as text.
        max_epsilon: the most that all releases together amount to, in the mechanism's sense.
        ledger: the whole path of the client's own ledger; its folder must exist. Under FLARE's
            simulator "{site}" in it becomes the client's name.
    """

    def __init__(self, mechanism: str, max_epsilon: float, ledger: str) -> None:
        super().__init__()
        self.mechanism = mechanism
        self.max_epsilon = max_epsilon
        self.ledger = ledger
        self._own: Mechanism = configured(MECHANISMS, mechanism, owner="PrivateFilter")
        require_own_currency(self._own)
        self._cap_units = to_units(self._own.cap(max_epsilon))
        require(self._cap_units >= 1, self, "max_epsilon", "a number from 1e-9")
        require(Path(ledger).is_absolute(), self, "ledger", "a whole path, from the root")

    def add_to_fed_job(self, job: Any, ctx: Any, **kwargs: Any) -> None:
        """Add the filter on both ways, without copies of fedmuster's source."""
        tasks = kwargs.get("tasks", ["train"])
        job.set_app_packages(sorted({*job.job.app_packages, "fedmuster"}))
        for way in (FilterType.TASK_DATA, FilterType.TASK_RESULT):
            job.add_filter(obj=self, filter_type=way, tasks=tasks, ctx=ctx)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Check the grant on the way in; pay and release on the way out."""
        if self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_DATA_CHAIN:
            return self._receive(shareable, fl_ctx)
        task = fl_ctx.get_prop(_TASK)
        fl_ctx.set_prop(_TASK, None, private=True, sticky=False)
        code = shareable.get_return_code()
        if code and code != ReturnCode.OK:
            return make_reply(code)
        if task is None:
            raise StateError("PrivateFilter: no grant came on the way in: filter both ways")
        return self._release(task, shareable, fl_ctx)

    def _receive(self, work: Shareable, fl_ctx: FLContext) -> Shareable:
        grant = Grant.of(work)
        if _settings(grant.mechanism) != _settings(self._own):
            raise DataError(
                f"the grant is of another mechanism than this client's {_settings(self._own)}: the "
                "workflow's privacy and the client's filter must have the same"
            )
        self._own.noise_scale(grant.amount)  # may know amounts for which it has no noise
        model = {
            name: np.array(numbers_of(value)) for name, value in from_shareable(work).data.items()
        }
        fl_ctx.set_prop(_TASK, _Task(grant, model), private=True, sticky=False)
        return work

    def _release(self, task: _Task, result: Shareable, fl_ctx: FLContext) -> Shareable:
        trained = from_shareable(result)
        if trained.data_kind not in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF):
            raise DataError(f"a result of kind {trained.data_kind} cannot be made private")
        is_difference = trained.data_kind == DataKind.WEIGHT_DIFF
        update = _update(task.model, trained.data, is_difference=is_difference)
        self._pay(task.grant, site=fl_ctx.get_identity_name())
        noisy = self._own.release(update, task.grant.amount, secure_bytes)
        released = _as_parameters(task.model, trained.data, noisy, is_difference=is_difference)
        key = FLMetaKey.NUM_STEPS_CURRENT_ROUND
        meta = {key: steps_of(trained.get_meta_prop(key))}
        if trained.get_meta_prop(MetaKey.PROCESSED_ALGORITHM):
            raise DataError("a result that was processed before cannot be made private")
        return DXO(trained.data_kind, data=released, meta=meta).to_shareable()

    def _pay(self, grant: Grant, *, site: str) -> None:
        """Put the release on record before it leaves; refuse one that is there, or is too much."""
        path = Path(self.ledger.replace("{site}", site))
        currency = self._own.currency.key
        with Ledger.open(path, currency=currency, kind="real", exclusive_for=None) as ledger:
            account = ledger.register([site], self._cap_units)
            units = np.array([to_units(grant.amount)], dtype=np.int64)
            debit = ledger.debit(run=grant.run, round=grant.round, accounts=account, units=units)
        if not debit.fresh[0]:
            raise StateError(f"round {grant.round} of run {grant.run} was released before")


def _settings(mechanism: Mechanism) -> dict[str, Any]:
    """What decides the noise; every side has a δ of its own, which converts ρ into ε."""
    return {name: value for name, value in to_table(mechanism).items() if name != "delta"}


def _update(
    model: Mapping[str, Any], trained: Mapping[str, Any], *, is_difference: bool
) -> FloatArray:
    """What training changed, as one vector, in the order of the model."""
    if not isinstance(trained, Mapping) or not trained.keys() <= model.keys():
        raise DataError("the result has other parameters than the model")
    changes = [np.zeros(0)]
    for name, before in model.items():
        if before.dtype.kind != "f":
            continue
        after = numbers_of(trained[name]) if name in trained else None
        if after is None or after.shape != before.shape:
            raise DataError(f"parameter {name!r} is missing, or has another shape than the model's")
        with np.errstate(invalid="ignore", over="ignore"):  # told of below
            change = after if is_difference else np.subtract(after, before, dtype=np.float64)
        changes.append(change.astype(np.float64).ravel())
    update = np.concatenate(changes)
    if update.size == 0:
        raise DataError("the model has no floating-point parameter: there is nothing to release")
    # That training diverged would tell of the data too: noise around nothing is sent.
    return update if np.isfinite(update).all() else np.zeros_like(update)


def _as_parameters(
    model: Mapping[str, Any], trained: Mapping[str, Any], noisy: FloatArray, *, is_difference: bool
) -> dict[str, Any]:
    """The release, in the types of the result; parameters of whole numbers stay as received."""
    released, start = {}, 0
    for name, before in model.items():
        if before.dtype.kind != "f":
            continue
        change = noisy[start : start + before.size].reshape(before.shape)
        start += before.size
        most = np.finfo(before.dtype).max  # of half precision, noise may ask for more
        values = change if is_difference else before.astype(np.float64) + change
        released[name] = like(trained[name], np.clip(values, -most, most))
    return released
