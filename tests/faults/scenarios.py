"""What the campaign kills: private runs that train, alone and on a common ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fedmuster import PAUSE, Random
from fedmuster.core.policy import Policy
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.federation import Federation
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.mechanisms import Gaussian, Laplace
from fedmuster.privacy.schedules import Geometric, Harmonic, Listed, Uniform
from fedmuster.training.aggregation import FedAdam
from fedmuster.training.models import MLP, Logistic
from fedmuster.training.training import Training
from fedmuster.worlds import PauseGroups


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One run, or several that share a ledger.

    Args:
        runs: in the order in which they are played.
        in_turns: whether another run may go on where one was killed. The schedule counts debits
            over all runs, so nothing but the invariants can be compared then.
    """

    runs: tuple[Experiment, ...]
    in_turns: bool = False

    def placed(self, folder: Path) -> dict[Path, Experiment]:
        """The runs by the folder they belong into."""
        if len(self.runs) == 1:
            return {folder / "run-1": self.runs[0]}
        return {
            folder / f"run-{number}": _with_ledger(run, folder / "shared.sqlite")
            for number, run in enumerate(self.runs, start=1)
        }

    def ledger(self, folder: Path) -> Path:
        if len(self.runs) == 1:
            return folder / "run-1" / LEDGER_NAME
        return folder / "shared.sqlite"

    @property
    def secure(self) -> bool:
        privacy = self.runs[0].privacy
        return privacy is not None and not privacy.simulated

    @property
    def comparable(self) -> bool:
        """Whether a run that was killed must equal one that was not, bit for bit."""
        return not self.in_turns and not self.secure


def _with_ledger(run: Experiment, ledger: Path) -> Experiment:
    assert run.privacy is not None
    return replace(run, privacy=replace(run.privacy, ledger=str(ledger)))


def private_run(
    policy: Policy[Any], privacy: Privacy, *, rounds: int = 24, **changes: Any
) -> Experiment:
    """A small one: 20 clients, of whom 4 are asked, learn digits."""
    settings: dict[str, Any] = {
        "policies": {policy.name: policy},
        "world": PauseGroups(num_clients=20, cohort_size=4, dropout=0.1, deadline_seconds=1.0),
        "rounds": rounds,
        "seeds": (7,),
        "regret": False,
        "privacy": privacy,
        "training": Training(model=MLP(hidden=(16,)), evaluate_every=6),
    }
    return Experiment(**{**settings, **changes})


_CROWD = PauseGroups(
    num_clients=20, cohort_size=4, over_selection=1.5, dropout=0.2, deadline_seconds=0.9
)
# With secure noise nobody knows who would have answered, so a whole cohort must never drop out.
_RELIABLE = PauseGroups(num_clients=20, cohort_size=4, dropout=0.02, deadline_seconds=1.5)
# Without a deadline every client answers, and what is not answered was lost with a kill.
_PROMPT = PauseGroups(num_clients=20, cohort_size=4)
_SLOTS = Federation(concurrency=4, buffer=2)
_PAUSE = Privacy(epsilon=40.0, schedule=Geometric(eta=0.04))
_SCARCE = Privacy(epsilon=9.0, schedule=Uniform(participations=3))

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "pause, geometric": Scenario(runs=(private_run(PAUSE(), _PAUSE, regret=True),)),
    "random, uniform, until privacy ends it": Scenario(
        runs=(
            private_run(
                Random(),
                replace(_SCARCE, mechanism=Gaussian()),
                rounds=1000,
                training=Training(model=Logistic(), evaluate_every=6),
            ),
        )
    ),
    "over-selection, harmonic, per coordinate, FedAdam": Scenario(
        runs=(
            private_run(
                Random(),
                Privacy(
                    epsilon=20.0,
                    schedule=Harmonic(),
                    mechanism=Laplace(mode="per-coordinate", clip=0.01),
                ),
                world=_CROWD,
                training=Training(model=MLP(hidden=(16,)), server=FedAdam(learning_rate=0.01)),
            ),
        )
    ),
    "pause in clusters, listed": Scenario(
        runs=(
            private_run(
                PAUSE(),
                Privacy(epsilon=5.0, schedule=Listed(shares=(0.4, 0.2, 0.2, 0.1, 0.1))),
                world=PauseGroups(
                    num_clients=20, cohort_size=4, num_clusters=5, deadline_seconds=1.0
                ),
                rounds=40,
            ),
        )
    ),
    "two runs, one after the other": Scenario(
        runs=(private_run(PAUSE(), _PAUSE, rounds=14), private_run(Random(), _PAUSE, rounds=14))
    ),
    "two runs in turns": Scenario(
        runs=(private_run(PAUSE(), _SCARCE, rounds=14), private_run(PAUSE(), _SCARCE, rounds=14)),
        in_turns=True,
    ),
    "pause, secure noise": Scenario(
        runs=(private_run(PAUSE(), replace(_PAUSE, noise="secure"), world=_RELIABLE),)
    ),
    "over-selection, secure noise, until privacy ends it": Scenario(
        runs=(
            private_run(
                Random(),
                replace(_SCARCE, noise="secure", mechanism=Gaussian()),
                world=replace(_RELIABLE, over_selection=1.5),
                rounds=1000,
            ),
        )
    ),
    "pause without rounds, geometric": Scenario(
        runs=(private_run(PAUSE(), _PAUSE, federation=_SLOTS, rounds=40),)
    ),
    "random without rounds, uniform, until privacy ends it": Scenario(
        runs=(
            private_run(
                Random(),
                replace(_SCARCE, mechanism=Gaussian()),
                federation=_SLOTS,
                rounds=1000,
                training=Training(model=Logistic(), evaluate_every=6),
            ),
        )
    ),
    "random without rounds, secure noise": Scenario(
        runs=(
            private_run(
                Random(),
                replace(_PAUSE, noise="secure"),
                world=_PROMPT,
                federation=_SLOTS,
                rounds=30,
            ),
        )
    ),
    "two runs in turns, secure noise": Scenario(
        runs=tuple(
            private_run(policy, replace(_SCARCE, noise="secure"), rounds=14, world=_RELIABLE)
            for policy in (PAUSE(), Random())
        ),
        in_turns=True,
    ),
}
