"""Flower's strategies, with the clients that fedmuster chooses."""

from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedmuster.core.errors import BudgetError, CallOrderError, ConfigError
from fedmuster.core.liveness import NEWCOMER_QUOTA, REST_AFTER
from fedmuster.core.policy import Policy, as_policy
from fedmuster.core.staleness import Discard
from fedmuster.flower.cohort_choice import EndedError, NodeContacts
from fedmuster.flower.grid_views import TimedGrid
from fedmuster.flower.muster_settings import EdgeGroups, Features, Settings, check_strategy
from fedmuster.flower.round_messages import EvaluateFn
from fedmuster.flower.run_record import Record
from fedmuster.flower.session import Session
from fedmuster.flower.strategy_loop import has_own_start, in_place, layers, say, warn
from fedmuster.privacy.budget import Privacy


class Muster(Strategy):
    """A strategy whose clients fedmuster chooses, and whose run survives the server's death.

    It wraps any strategy of ``flwr.serverapp.strategy`` and changes none of it: the strategy
    configures, aggregates and evaluates as before, but sees only the chosen nodes when it trains.
    Start it as the strategy itself::

        strategy = Muster(FedAvg(), policy=BSFL(), cohort_size=4, folder="runs/mine")
        result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

    If the ServerApp dies, run the app again: it continues after the last round on record.

    Args:
        strategy: the strategy to wrap; of several wrappers, Muster is the outermost.
        policy: the policy, or its name and settings, for example ``"bsfl:alpha=3"``.
        cohort_size: m, how many clients train in a round.
        folder: of the run; a relative path is taken from where the ServerApp runs.
        seed: of the policy.
        deadline_seconds: when a round closes at the latest; None for the ``timeout`` of
            :meth:`start`.
        over_selection: ask ``over_selection × m`` clients, and close with the first m answers.
        min_nodes: nodes to wait for before the first round; None for a cohort.
        wait_seconds: how long to wait when the strategy needs more nodes than there are; three
            times as long before the first round, when processes are starting.
        poll_seconds: how often to look for answers.
        authenticated: whether all nodes' keys were registered with the SuperLink
            (``--enable-supernode-auth``): then a node is its key, whatever it says it is.
        privacy: what clients are promised; needs the ``PrivateMod`` in the ClientApp.
        edges: the groups of nodes that are the edge servers of hierarchical policies.
        rest_after: how many jobs in a row a client may leave unanswered before it rests; 0 for
            never, as the policies were published.
        newcomer_quota: the largest share of places for nodes that came after the first round and
            have not answered yet; 1 for no limit.
        features: the context of clients: called before each choice with their identities, returns
            [K, d] (with edges [K, M, d]).
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        policy: Policy[Any] | str,
        cohort_size: int,
        folder: str | Path,
        seed: int = 0,
        deadline_seconds: float | None = None,
        over_selection: float = 1.0,
        min_nodes: int | None = None,
        wait_seconds: float = 60.0,
        poll_seconds: float = 0.2,
        authenticated: bool = False,
        privacy: Privacy | None = None,
        edges: EdgeGroups | None = None,
        features: Features | None = None,
        rest_after: int = REST_AFTER,
        newcomer_quota: float = NEWCOMER_QUOTA,
    ) -> None:
        if isinstance(strategy, Strategy) and any(isinstance(e, Muster) for e in layers(strategy)):
            raise ConfigError(
                "Muster: the strategy is, or holds, a Muster already, and one must be outermost: "
                "wrap the strategy itself, once"
            )
        self.strategy = strategy
        self.settings = Settings(
            policy=as_policy(policy, owner="Muster"),
            cohort_size=cohort_size,
            folder=Path(folder).absolute(),
            seed=seed,
            deadline_seconds=deadline_seconds,
            over_selection=over_selection,
            min_nodes=min_nodes,
            wait_seconds=wait_seconds,
            poll_seconds=poll_seconds,
            authenticated=authenticated,
            privacy=privacy,
            edges=edges,
            features=features,
            rest_after=rest_after,
            newcomer_quota=newcomer_quota,
        )
        self.check()
        self._mark = object()
        self._grid: Grid | None = None
        self._contacts = NodeContacts.fresh(deadline_seconds=deadline_seconds)
        self._rounds_asked = 0
        self._has_played = False
        self._in_step = False

    def check(self) -> None:
        """Refuse a strategy that does not fit the settings; done when made and at each start."""
        check_strategy(
            self.strategy,
            policy=self.settings.policy,
            cohort_size=self.settings.cohort_size,
            num_to_ask=self.settings.num_to_ask,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the wrapped strategy, except those of Muster itself."""
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(self.strategy, name, value)

    def __getattr__(self, name: str) -> Any:
        """Get any other attribute from the wrapped strategy."""
        if name == "strategy":  # a copy in the making
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def summary(self) -> None:
        """Log what fedmuster does, and what the strategy says of itself."""
        self._announce()
        self.strategy.summary()

    def _announce(self) -> None:
        settings = self.settings
        say(
            f"{settings.policy.name} chooses {settings.num_to_ask} nodes a round for "
            f"{type(self.strategy).__name__}; the run is in {settings.folder}"
        )
        if not isinstance(settings.policy.stale_answers, Discard):
            warn(
                f"{settings.policy.name} would use late answers "
                f"({settings.policy.stale_answers.name}), but Flower's strategies cannot: they are "
                "dropped"
            )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        **more: Any,
    ) -> Result:
        """Run the strategy's own loop for the rounds that are not on record yet.

        Arguments as of Flower's ``Strategy.start``; ``more`` goes to strategies whose ``start``
        takes more. A further start of the same object plays that many more rounds, and its result
        counts them from 1, as Flower's does.
        """
        given = _that_were_given(
            timeout=timeout,
            train_config=train_config,
            evaluate_config=evaluate_config,
            evaluate_fn=evaluate_fn,
        )
        if num_rounds < 1:  # Flower only evaluates then: there is nothing to record
            return self.strategy.start(
                grid=grid, initial_arrays=initial_arrays, num_rounds=num_rounds, **given, **more
            )
        self.check()
        settings = self.settings
        if grid is not self._grid:
            self._grid = grid
            self._contacts = NodeContacts.fresh(deadline_seconds=settings.deadline_seconds)
        rounds_before, rounds_asked = self._rounds_asked, self._rounds_asked + int(num_rounds)
        timed = TimedGrid(
            grid, poll_seconds=settings.poll_seconds, deadline_seconds=settings.deadline_seconds
        )
        with (
            closing(timed),
            Record.open(
                settings.folder,
                settings.experiment(rounds=rounds_asked),
                wait_seconds=settings.wait_seconds,
            ) as record,
            closing(
                Session(
                    settings,
                    self.strategy,
                    record,
                    timed,
                    arrays=initial_arrays,
                    contacts=self._contacts,
                    evaluate_config=evaluate_config,
                    rounds_before=rounds_before,
                    in_step=self._in_step,
                )
            ) as session,
        ):
            done = session.loop_rounds.done
            on_record = f"{done} rounds are on record in {settings.folder}"
            if record.ending is not None or session.loop_rounds.over(rounds_asked):
                say(f"{on_record}: {record.ending or 'nothing is left to train'}")
                self._warn_of_others()
                session.catch_up(evaluate_fn)
                self._rounds_asked, self._in_step = rounds_asked, True
                if session.loop_rounds.several:  # the journal's rounds are not those of the loop
                    return record.result(session.arrays)
                return record.result(session.arrays, after=rounds_before, until=rounds_asked)
            if done > 0:
                say(f"{on_record}: what Flower calls round 1 is round {done + 1}")
            self._announce()
            again = self._has_played and done == rounds_before
            config = session.train_config.go_on_with(train_config, again=again)
            given |= _that_were_given(
                train_config=config, evaluate_fn=session.on_server(evaluate_fn)
            )
            returned = self._play(session, timed, rounds_asked, **given, **more)
            # Not after a failure: the same start is tried again. A loop may end early.
            self._rounds_asked = session.loop_rounds.done
            after = 0 if session.loop_rounds.several else rounds_before
            result = record.result(session.arrays, after=after)
            if returned is None or not has_own_start(self.strategy):
                return result
            return returned if done == rounds_before else _completed(returned, result)

    def _play(
        self, session: Session, grid: TimedGrid, rounds_asked: int, **given: Any
    ) -> Result | None:
        """Run the strategy's own loop with the session's methods; what the loop returns."""
        self._has_played, self._in_step = True, False
        _PLAYED_BY[self.settings.folder] = self._mark
        num_rounds = rounds_asked - session.loop_rounds.done
        try:
            with in_place(self.strategy, session.methods):
                returned = self.strategy.start(
                    grid=grid, initial_arrays=session.arrays, num_rounds=num_rounds, **given
                )
            session.end_loop(rounds_asked)
        except EndedError as ended:
            if session.rounds_done == 0:
                raise BudgetError(
                    f"{ended}: no round can be played with what is left. Promise more, or use "
                    "another ledger"
                ) from None
            session.end(str(ended))
            returned = None
        except BaseException:
            self._undo(session)
            raise
        self._in_step = True
        return returned

    def _undo(self, session: Session) -> None:
        """Undo the open round so that the start can be tried again; the first error counts."""
        try:
            session.undo_open_round()
            self._in_step = True
        except Exception as error:
            warn(f"what the open round has changed cannot be undone: {error}")

    def _warn_of_others(self) -> None:
        """Warn where another Muster of this app has played the rounds on record."""
        if _PLAYED_BY.get(self.settings.folder, self._mark) is not self._mark:
            warn(
                "another Muster of this app has played these rounds: if this one shall train, give "
                "it a folder of its own"
            )

    def _outside_start(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise CallOrderError(
            "Muster: no run is open. Make Muster the outermost strategy and call its start(): "
            "Muster(DifferentialPrivacyServerSideFixedClipping(FedAvg(), …), …).start(grid=grid, …)"
        )

    configure_train = aggregate_train = _outside_start
    configure_evaluate = aggregate_evaluate = _outside_start


_OWN = frozenset(
    {"strategy", "settings", "check", "start", "summary"}
    | {"_grid", "_contacts", "_rounds_asked", "_has_played", "_in_step", "_mark"}
)
"""Attributes of Muster itself."""
_PLAYED_BY: dict[Path, object] = {}
"""The mark of the Muster that played a folder last, in this process."""


def _completed(returned: Result, result: Result) -> Result:
    """The result of a user's own start of the last rounds, with the metrics of all rounds."""
    if isinstance(returned, Result):  # a start of one's own may return anything
        returned.train_metrics_clientapp = result.train_metrics_clientapp
        returned.evaluate_metrics_clientapp = result.evaluate_metrics_clientapp
        returned.evaluate_metrics_serverapp = result.evaluate_metrics_serverapp
    return returned


def _that_were_given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None: a ``start`` of one's own may not know others."""
    return {name: value for name, value in arguments.items() if value is not None}
