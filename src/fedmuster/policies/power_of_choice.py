"""Power-of-Choice: samples candidates and takes those with the highest loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.core.state import given
from fedmuster.core.words import percent, several
from fedmuster.policies.explaining.simple_rules import Highest
from fedmuster.policies.random import draw
from fedmuster.policies.score_columns import published
from fedmuster.solvers.top_k import highest, nobody


@dataclass(slots=True)
class LossState:
    """The last loss of each client (+inf for the unseen) and its data, 0-d where all have alike."""

    loss: FloatArray
    data: FloatArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class PowerOfChoice(PolicyTraits):
    """The clients with the highest loss among some that are drawn in proportion to their data.

    Draws d candidates without replacement with probability in proportion to ``|X_k|``, and takes
    the m of them with the largest loss. Three variants say which loss:

    - ``pow-d`` asks every candidate for the loss of the global model on its data;
    - ``cpow-d`` asks for the loss on a mini-batch, which is cheaper to compute;
    - ``rpow-d`` asks nobody and takes the loss that each reported when it last trained (the signal
      "loss"), +inf for those who never did.

    With all clients for candidates ``rpow-d`` is what BSFL compares with. Where nobody ever reports
    a loss (there is no model), it draws at random.

    Args:
        variant: which loss. ``pow-d`` and ``cpow-d`` need a model that is being trained.
        num_candidates: d, between m and K; None for all who are available, fewer than m count as
            m. Paper: 2 m to 5 m on Fashion-MNIST; the more, the faster and the more biased.
        batch_size: b, how many samples ``cpow-d`` asks for.

    State:
        Of each client the last loss.

    Deviations:
        1. A client that is asked to train and reports no loss counts, until it does, as the median
           of the others; or else one that never answers would be chosen for ever.
        2. A candidate that answers with something that is no finite number comes last.
        3. Without rounds, m is the number of clients that are chosen at once, and d candidates are
           drawn for each choice: where slots are filled one by one, a d of 2 to 5 is the paper's.
        4. As training lowers the losses of clients that answer, silent clients come to have the
           highest. Behind a Selector a silent client rests after 5 jobs in a row without an answer
           (fedmuster.core.liveness); rest_after = 0 is the published rule.

    References:
        Y. J. Cho, J. Wang, G. Joshi, Client Selection in Federated Learning: Convergence Analysis
        and Power-of-Choice Selection Strategies, 2020, arXiv:2010.01243.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=5, cohort_size=2)
        >>> selector = Selector(PowerOfChoice(variant="pow-d"), problem)
        >>> def ask_loss(clients, *, batch_size=None):
        ...     return np.array([0.3, 0.9, 0.1, 0.8, 0.2])[clients]
        >>> selector.select(ask_loss=ask_loss).clients
        array([1, 3])
    """

    name: ClassVar[str] = "power-of-choice"
    terms: ClassVar[Mapping[str, str]] = {
        "asked_loss": "the loss of the global model on its data, as it answered"
    }

    variant: Literal["pow-d", "cpow-d", "rpow-d"] = "rpow-d"
    num_candidates: int | None = None
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_types(self)
        given_ = self.num_candidates
        require(given_ is None or given_ >= 1, self, "num_candidates", "an integer >= 1")
        require(self.batch_size >= 1, self, "batch_size", "an integer >= 1")

    def init(self, problem: Problem) -> LossState:
        """No loss known yet."""
        samples = problem.num_samples
        return LossState(
            loss=np.full(problem.num_clients, np.inf),
            data=np.array(1.0) if samples is None else samples.astype(np.float64),
        )

    def select(self, state: LossState, view: RoundView, rng: Generator) -> Selection:
        """The highest losses among the candidates."""
        if view.num_to_choose == 0:
            return nobody(view)
        candidates = self._candidates(state, view, rng)
        return highest(view, candidates, self._losses(state, view, candidates), rng)

    def observe(self, state: LossState, selection: Selection, feedback: Feedback) -> None:
        """Remember the losses that came with the answers."""
        clients = feedback.clients
        loss = feedback.signals.get("loss", np.full(len(clients), np.nan))
        heard = feedback.answered & np.isfinite(loss)
        state.loss[clients[heard]] = loss[heard]
        silent = clients[~heard]
        if len(silent) > 0:
            others = np.isfinite(state.loss)
            others[silent] = False
            if others.any():
                state.loss[silent] = np.median(state.loss[others])

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        reported = self.variant == "rpow-d"
        return Highest(
            term="score" if reported else "asked_loss",
            formula=f"the highest losses, {'as last reported' if reported else 'asked for'}",
            unseen="it never reported a loss, and such clients come first" if reported else None,
            drawn=self._drawn,
        )

    def _drawn(self, moment: Moment) -> str | None:
        count = max(self.num_candidates or moment.num_available, len(moment.cohort))
        if count >= moment.num_available:
            return None
        return (
            f"only {several(count, 'candidate')} are looked at, drawn by their data (a chance of "
            f"about {percent(count / moment.num_available)})"
        )

    def scores(self, state: LossState, view: RoundView) -> Mapping[str, FloatArray]:
        """The last loss of each client, where that decides; else only those asked have one."""
        return published(state.loss) if self.variant == "rpow-d" else {}

    def _candidates(self, state: LossState, view: RoundView, rng: Generator) -> IntArray | slice:
        """The first step of the strategy: the candidate set A."""
        count = view.num_available if self.num_candidates is None else self.num_candidates
        count = max(count, view.num_to_choose)
        if count >= view.num_available:
            return view.candidates()
        drawn = draw(state.data, view, count, rng)
        return np.sort(np.flatnonzero(view.available)[drawn])

    def _losses(
        self, state: LossState, view: RoundView, candidates: IntArray | slice
    ) -> FloatArray:
        """The second step: the estimated local losses."""
        if self.variant == "rpow-d":
            return state.loss[candidates]
        if view.ask_loss is None:
            raise DataError(
                f"PowerOfChoice: variant {self.variant!r} asks clients for the loss of the model, "
                "and there is no model that is being trained: train one (or give select an "
                "ask_loss), or use variant = 'rpow-d'"
            )
        batch_size = self.batch_size if self.variant == "cpow-d" else None
        asked = np.arange(len(state.loss))[candidates]
        loss = view.ask_loss(asked, batch_size=batch_size)
        return np.where(np.isfinite(loss), loss, -np.inf)
