"""The mixin that lets fedmuster choose the clients of a FLARE workflow, and survive its server.

Only methods and callbacks that FLARE documents are used: ``sample_clients``, ``broadcast`` and
``broadcast_and_wait`` with the callbacks of their tasks, ``update_model``, ``load_model``,
``cancel_task`` and events.
"""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, FLMetaKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg

from fedmuster.core.arrays import BoolArray
from fedmuster.core.errors import StateError
from fedmuster.core.policy import as_policy
from fedmuster.nvflare.federation import EndedError, Federation, Reply, log
from fedmuster.nvflare.plain_values import NotPlainError, pack
from fedmuster.nvflare.replies import parameters_fault, steps_of
from fedmuster.nvflare.settings import Settings, named_policy, promised

_LOOK_SECONDS: Final = 0.2
_START_SECONDS: Final = 60.0
"""How long the first round waits for a whole cohort, while clients start."""


class MusterController(BaseFedAvg):
    """Chooses the clients of a FLARE workflow by a policy; the run survives the server's death.

    Put it before a workflow that derives from FLARE's ``BaseFedAvg``, and change nothing else::

        class MyMuster(MusterController, MyFedAvg): ...

        job.to_server(MyMuster(num_clients=4, num_rounds=50, policy="tempo", folder="/runs/mine"))

    ``num_clients`` is the size of a cohort. If the server dies, start the job again, with the same
    folder: it continues after the last round on record.

    Args:
        policy: the policy's name and settings as text, for example ``"bsfl:alpha=3"``.
        folder: of the run. A relative path is taken from the server's workspace; None is "muster"
            in the folder of this job's run, to which a job that is submitted again has no way back.
        seed: of the policy.
        deadline_seconds: when a round closes at the latest, in whole seconds (rounded up); None to
            wait for ever, as FLARE's FedAvg does. A policy may set an earlier deadline.
        over_selection: ask ``over_selection × num_clients`` clients, and close with the first
            ``num_clients`` answers.
        wait_seconds: how long to wait while no client can be asked, before the job is given up.
        pull_seconds: how often FLARE's clients ask for work. So long a wait is not held against a
            client.
        privacy: what clients are promised, as text such as
            ``'epsilon=4,mechanism={name="gaussian", clip=1.0}'``; needs the
            :class:`~fedmuster.nvflare.PrivateFilter` on clients.
    """

    remembers: ClassVar[tuple[str, ...]] = ()
    """Attributes of the workflow that change from round to round, and must survive the server:
    plain values (``plain_values.py``)."""

    def __init__(
        self,
        *args: Any,
        policy: str = "tempo",
        folder: str | None = None,
        seed: int = 0,
        deadline_seconds: float | None = 3600.0,
        over_selection: float = 1.0,
        wait_seconds: float = 600.0,
        pull_seconds: float = 2.0,
        privacy: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        # FLARE's Job API reads arguments back from attributes of the same names.
        self.policy = named_policy(policy)
        self.folder = folder
        self.seed = seed
        self.deadline_seconds = deadline_seconds
        self.over_selection = over_selection
        self.wait_seconds = wait_seconds
        self.pull_seconds = pull_seconds
        self.privacy = privacy
        self._settings(Path())  # complain where the job is made
        self._federation: Federation | None = None
        self._was_restored = False
        self._task_name = ""  # of the open round's work
        self._rounds_asked = (0, 0)

    def add_to_fed_job(self, job: Any, ctx: Any, **kwargs: Any) -> None:
        """Add this workflow to a job, without copies of fedmuster's source."""
        job.set_app_packages(sorted({*job.job.app_packages, "fedmuster"}))
        super().add_to_fed_job(job, ctx, **kwargs)

    # --- Start and end --------------------------------------------------------------------------

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Open the run's folder, and go on with the run that it holds."""
        super().start_controller(fl_ctx)
        folder = Path(self.engine.get_workspace().get_root_dir(), self.folder or "")
        if self.folder is None:
            folder = Path(self.get_run_dir()) / "muster"
        self._rounds_asked = (self.start_round, self.num_rounds)
        federation = self._start(self._settings(folder), rounds=max(self.num_rounds, 1))
        self._federation = federation
        done = federation.rounds_done
        num = self.num_clients
        log.info("%s chooses %d clients a round; the run is in %s", self.policy, num, folder)
        if done > 0:
            log.info("%d rounds are on record: the next is round %d", done, done + 1)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Close the run's folder."""
        if self._federation is not None:
            self._federation.close()
            self._federation = None
        super().stop_controller(fl_ctx)

    def run(self) -> None:
        """Run the workflow for the rounds that are not on record yet."""
        federation = self._opened
        start_round, num_rounds = self._rounds_asked
        left = num_rounds - federation.rounds_done
        if federation.ending is not None or left <= 0:
            log.info(
                "nothing is left to train: %s", federation.ending or "all rounds are on record"
            )
            self.save_model(self.load_model())
            return
        self.start_round, self.num_rounds = start_round + federation.rounds_done, left
        if getattr(self, "model", None) is not None and federation.saved is not None:
            self.model = self._saved_model(federation)
        try:
            self._train()
        except EndedError as ended:
            log.warning("%s", ended)
            federation.commit(self._remembered(), ending=str(ended))
            return
        finally:
            self.start_round, self.num_rounds = start_round, num_rounds
        if not self.is_aborted():
            federation.end_round()
            early = federation.rounds_closed < num_rounds
            ending = f"the workflow ended after round {federation.rounds_closed}" if early else None
            federation.commit(self._remembered(), ending=ending)

    def _train(self) -> None:
        super().run()

    def load_model(self) -> FLModel:
        """Load the model that is on record, or else what the workflow begins with."""
        model = super().load_model()  # in any case: persistors prepare themselves when they load
        federation = self._opened
        if federation.saved is None or model is None:
            return model
        return self._saved_model(federation)

    def _saved_model(self, federation: Federation) -> FLModel:
        model = FLModel(params=dict(federation.model))
        learnable = make_model_learnable(weights=model.params, meta_props=model.meta)
        self.fl_ctx.set_prop(AppConstants.GLOBAL_MODEL, learnable, private=True, sticky=True)
        return model

    def workflow_state(self) -> Mapping[str, Any]:
        """Get what the workflow remembers from round to round, as plain values."""
        return {name: getattr(self, name) for name in self.remembers}

    def load_workflow_state(self, state: Mapping[str, Any]) -> None:
        """Go on with what :meth:`workflow_state` gave; called before the first round."""
        for name, value in state.items():
            setattr(self, name, value)

    # --- A round --------------------------------------------------------------------------------

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Put the last round on record, and let the policy choose the clients of the next."""
        federation = self._opened
        open_round = federation.open_round
        if open_round is not None and open_round.began is None:
            return list(open_round.names)  # asked again before any work was sent
        federation.end_round()  # of a workflow that has not called update_model
        federation.commit(self._remembered())
        if federation.saved is not None and not self._was_restored:
            self.load_workflow_state(federation.saved.workflow)
        self._was_restored = True
        until = time.monotonic() + self.wait_seconds
        while not (names := federation.choose(self._wait_for_clients(federation)).names):
            federation.end_round()  # FLARE would send the work of nobody to everybody
            if time.monotonic() >= until:
                raise StateError(f"{self.policy} has chosen nobody for {self.wait_seconds:g} s")
            time.sleep(_LOOK_SECONDS)
        return list(names)

    def _wait_for_clients(self, federation: Federation) -> BoolArray:
        """bool[K], the clients that can be asked: at first a cohort if it comes soon, then any."""
        began = time.monotonic()
        wanted = federation.settings.num_to_ask if federation.rounds_chosen == 0 else 1
        while True:
            available = federation.free([client.name for client in self.engine.get_clients()])
            free, waited = int(np.count_nonzero(available)), time.monotonic() - began
            enough = min(wanted, federation.expected) if waited < _START_SECONDS else 1
            if free >= enough > 0:
                return available
            if self.is_aborted():
                raise StateError("the job was aborted while no client could be asked")
            if waited >= self.wait_seconds:
                raise StateError(
                    f"no client has asked for work for {self.wait_seconds:g} s: see the clients' "
                    "logs, and submit the job again; it goes on after the last round on record"
                )
            time.sleep(_LOOK_SECONDS)

    def broadcast(
        self,
        task: Task,
        fl_ctx: FLContext,
        targets: list[Client] | list[str] | None = None,
        min_responses: int = 0,
        wait_time_after_min_received: int = 0,
    ) -> None:
        """Send work; that of the open round with a deadline, and timed."""
        self._prepare(task, targets)
        super().broadcast(task, fl_ctx, targets, min_responses, wait_time_after_min_received)

    def broadcast_and_wait(
        self,
        task: Task,
        fl_ctx: FLContext,
        targets: list[Client] | list[str] | None = None,
        min_responses: int = 0,
        wait_time_after_min_received: int = 0,
        abort_signal: Signal | None = None,
    ) -> None:
        """Send work and wait; that of the open round with a deadline, and timed."""
        self._prepare(task, targets)
        super().broadcast_and_wait(
            task, fl_ctx, targets, min_responses, wait_time_after_min_received, abort_signal
        )

    def _prepare(self, task: Task, targets: list[Client] | list[str] | None) -> None:
        federation = self._opened
        round_ = federation.open_round
        names = {getattr(target, "name", target) for target in targets or ()}
        if round_ is None or round_.began is not None or names != set(round_.names):
            return  # not the work of the open round
        self._task_name = task.name
        model = from_shareable(task.data).data
        if isinstance(model, Mapping):
            federation.model = model
        _correct_rounds(task.data, *self._rounds_asked)
        limits = (task.timeout, self.deadline_seconds, round_.selection.deadline_seconds)
        task.timeout = min((math.ceil(limit) for limit in limits if limit), default=0)
        sent, received = task.after_task_sent_cb, task.result_received_cb

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            if sent is not None:
                sent(client_task=client_task, fl_ctx=fl_ctx)
            federation.taken(client_task.client.name)

        def judge(client_task: ClientTask, fl_ctx: FLContext) -> None:
            reply = self._reply(client_task.result)
            if federation.arrived(round_, client_task.client.name, reply) and received is not None:
                received(client_task=client_task, fl_ctx=fl_ctx)
            client_task.result = None
            if federation.has_enough and task.completion_status is None:
                self.cancel_task(task, completion_status=TaskCompletionStatus.OK)

        task.after_task_sent_cb, task.result_received_cb = take, judge
        federation.sent()

    def _reply(self, result: Shareable) -> Reply:
        code = result.get_return_code()
        if code and code != ReturnCode.OK:
            return Reply(None, None, "FULL", f"the client failed ({code})")
        try:
            model = FLModelUtils.from_shareable(result)
        except Exception as error:  # whatever FLARE makes of bytes from outside
            return Reply(None, None, "FULL", f"it cannot be read ({type(error).__name__})")
        kind = "FULL" if model.params_type is None else model.params_type.value
        steps = steps_of(model.meta.get(FLMetaKey.NUM_STEPS_CURRENT_ROUND))
        return Reply(model.params, model.metrics, kind, self.reply_fault(model), steps)

    def reply_fault(self, reply: FLModel) -> str | None:
        """Say why a reply is no use to this workflow, beyond its parameters; None if it is."""
        return None

    def aggregate(
        self, results: list[FLModel], aggregate_fn: Callable[[list[FLModel]], FLModel] | None = None
    ) -> FLModel:
        """Let the workflow aggregate, if anybody has answered."""
        if not results:
            return FLModel(params={})
        return super().aggregate(results, aggregate_fn)

    def update_model(self, model: FLModel, aggr_result: FLModel) -> FLModel:
        """Learn from the round; let the workflow update the model, if there is anything to add."""
        federation = self._opened
        number = federation.rounds_closed + 1
        if federation.end_round() == 0:
            log.warning("round %d: no usable reply came in time; the model stays", number)
            return model
        fault = parameters_fault(aggr_result.params, {})
        if fault is not None:
            log.warning("round %d: the aggregate is no use: %s; the model stays", number, fault)
            return model
        return self._updated(model, aggr_result)

    def _updated(self, model: FLModel, aggr_result: FLModel) -> FLModel:
        updated = super().update_model(model, aggr_result)
        self._opened.model = updated.params
        return updated

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Notice which clients ask for work; tell each what it has paid for."""
        super().handle_event(event_type, fl_ctx)
        peer, federation = fl_ctx.get_peer_context(), self._federation
        name = None if peer is None else peer.get_identity_name()
        if not name or federation is None:
            return
        if event_type == EventType.BEFORE_PROCESS_TASK_REQUEST:
            if federation.clients.asks_for_work(name):
                log.info("%s asks for work", name)
        elif event_type == EventType.BEFORE_TASK_DATA_FILTER:  # on the way to this client alone
            grant = federation.grant_for(name)
            if grant is not None and fl_ctx.get_prop(FLContextKey.TASK_NAME) == self._task_name:
                grant.into(fl_ctx.get_prop(FLContextKey.TASK_DATA))

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """Drop a reply that comes after its round."""
        log.warning("%s answered too late, which is not used", client.name)

    # --- Parts ----------------------------------------------------------------------------------

    @property
    def _opened(self) -> Federation:
        if self._federation is None:
            raise StateError("Muster: FLARE has not started this workflow")
        return self._federation

    def _start(self, settings: Settings, *, rounds: int) -> Federation:
        return Federation.start(settings, rounds=rounds)

    def _settings(self, folder: Path) -> Settings:
        return Settings(
            policy=as_policy(self.policy, owner="Muster"),
            cohort_size=self.num_clients,
            folder=folder,
            seed=self.seed,
            deadline_seconds=self.deadline_seconds,
            over_selection=self.over_selection,
            wait_seconds=self.wait_seconds,
            pull_seconds=self.pull_seconds,
            privacy=promised(self.privacy),
        )

    def _remembered(self) -> dict[str, Any]:
        state = {}
        for name, value in self.workflow_state().items():
            try:
                pack(value)
            except NotPlainError as error:
                log.warning("%s of the workflow is lost if the server dies: %s", name, error)
            else:
                state[name] = value
        return state


def _correct_rounds(data: Shareable, start_round: int, num_rounds: int) -> None:
    """Tell clients of the whole run's rounds, also after a restart."""
    for header, value in (
        (AppConstants.START_ROUND, start_round),
        (AppConstants.NUM_ROUNDS, num_rounds),
    ):
        if data.get_header(header) is not None:
            data.set_header(header, value)
