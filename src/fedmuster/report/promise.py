"""What clients were promised, in words that promise no more."""

from collections.abc import Iterator, Mapping

from fedmuster.core.config import to_table
from fedmuster.experiments.spec import Experiment
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.mechanisms import Gaussian, Laplace
from fedmuster.privacy.schedules import Currency

_SYMBOLS: Mapping[Currency, str] = {
    "epsilon": "ε",
    "epsilon-per-coordinate": "ε per coordinate",
    "rho": "ρ (zCDP)",
}
_FARTHEST = 4.0


def statement(experiment: Experiment) -> tuple[str, ...]:
    """The one line that no report goes without; nothing where nobody has privacy.

    Example:
        >>> from fedmuster.policies import Random
        >>> from fedmuster.worlds import BSFLRates
        >>> policies = {"random": Random()}
        >>> statement(Experiment(policies=policies, world=BSFLRates(), rounds=9, privacy=Privacy()))
        ('privacy: simulated (seeded noise protects nobody)',)
    """
    privacy = experiment.privacy
    if privacy is None or experiment.unprotected == experiment.policies.keys():
        return ()
    text = "simulated (seeded noise protects nobody)"
    if not privacy.simulated:
        text = f"{_bound(privacy)} per client ({_kind(privacy)}), ledger kept"
    if experiment.unprotected:
        text += f"; none for {', '.join(_unprotected(experiment))}"
    return (f"privacy: {text}",)


def symbol(privacy: Privacy) -> str:
    """What the ledger counts: ε, ε per coordinate, or ρ."""
    return _SYMBOLS[privacy.mechanism.currency]


def cap_text(privacy: Privacy) -> str:
    """The cap, as beside a line in a picture."""
    if isinstance(privacy.mechanism, Gaussian):
        return f"cap ρ = {privacy.cap:.3g} ({_bound(privacy, '=')})"
    return f"cap {_bound(privacy, '=')}"


def cap_in_sight(privacy: Privacy, highest: float) -> bool:
    """Whether a picture of amounts up to ``highest`` can show the cap without crushing them."""
    return highest > privacy.cap / _FARTHEST


def spent_title(privacy: Privacy, column: str) -> str:
    """Of an axis: whose spending, in what currency."""
    return {
        "spent_max": f"largest {symbol(privacy)} spent by a client",
        "spent_mean": f"mean {symbol(privacy)} spent by a client",
    }[column]


def in_words(experiment: Experiment, num_parameters: int | None) -> Iterator[str]:
    """The mechanism, who pays, and the cap with the ε that updates as a whole really get.

    ``num_parameters`` is how many numbers an update has, None where nothing was trained.
    """
    privacy = experiment.privacy
    if privacy is None:
        return
    yield _noise(privacy)
    schedule = to_table(privacy.schedule)
    settings = ", ".join(f"{key} = {schedule[key]}" for key in schedule if key != "name")
    yield (
        f"Whoever is asked pays, also without an answer, by the {schedule['name']} schedule "
        f"({settings}); no client ever spends more than the cap."
    )
    if num_parameters is None and _per_coordinate(privacy):
        yield f"The cap: {_bound(privacy, '=')}; of a whole update that times its coordinates."
    else:
        yield f"The cap: {privacy.mechanism.describe(privacy.cap, num_parameters or 1)}."


def _noise(privacy: Privacy) -> str:
    clip = f"{privacy.mechanism.clip:g}"
    if isinstance(privacy.mechanism, Gaussian):
        return f"Updates are clipped to an L2 norm of {clip} and get Gaussian noise."
    if _per_coordinate(privacy):
        return f"Each coordinate of an update is clipped to ±{clip} and gets Laplace noise."
    return f"Updates are clipped to an L1 norm of {clip} and get Laplace noise."


def _bound(privacy: Privacy, sign: str = "≤") -> str:
    bound = f"ε {sign} {privacy.epsilon:g}"
    if isinstance(privacy.mechanism, Gaussian):
        return f"{bound}, δ = {privacy.mechanism.delta:g}"
    return f"{bound} per coordinate" if _per_coordinate(privacy) else bound


def _kind(privacy: Privacy) -> str:
    mechanism = privacy.mechanism
    return f"Laplace, {mechanism.mode}" if isinstance(mechanism, Laplace) else "Gaussian"


def _per_coordinate(privacy: Privacy) -> bool:
    return privacy.mechanism.currency == "epsilon-per-coordinate"


def _unprotected(experiment: Experiment) -> list[str]:
    return [label for label in experiment.policies if label in experiment.unprotected]
