"""What clients were promised, in the words of the mechanism that keeps the promise."""

from collections.abc import Iterator

from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.spec_tables import table_of
from fedmuster.privacy.budget import Privacy

_FARTHEST = 4.0


def statement(experiment: Experiment) -> tuple[str, ...]:
    """The line about privacy that every report has; nothing where no policy has privacy.

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
        mechanism = privacy.mechanism
        text = f"{mechanism.bound(privacy.epsilon)} per client ({mechanism.variant}), ledger kept"
    if experiment.unprotected:
        without = [label for label in experiment.policies if label in experiment.unprotected]
        text += f"; none for {', '.join(without)}"
    return (f"privacy: {text}",)


def cap_text(privacy: Privacy) -> str:
    """The cap, as beside a line in a picture."""
    unit, bound = privacy.mechanism.currency, privacy.mechanism.bound(privacy.epsilon, "=")
    if unit.is_epsilon:
        return f"cap {bound}"
    return f"cap {unit.symbol} = {privacy.cap:.3g} ({bound})"


def cap_in_sight(privacy: Privacy, highest: float) -> bool:
    """Whether a picture of amounts up to ``highest`` can show the cap without crushing them."""
    return highest > privacy.cap / _FARTHEST


def spent_title(privacy: Privacy, column: str) -> str:
    """The title of an axis that shows ``spent_max`` or ``spent_mean``."""
    which = {"spent_max": "largest", "spent_mean": "mean"}[column]
    return f"{which} {privacy.mechanism.currency.title} spent by a client"


def in_words(experiment: Experiment, num_parameters: int | None) -> Iterator[str]:
    """What the mechanism does, who pays, and the cap with the ε that whole updates get.

    ``num_parameters`` is how many numbers an update has, None where nothing was trained.
    """
    privacy = experiment.privacy
    if privacy is None:
        return
    yield privacy.mechanism.procedure
    schedule = table_of(privacy.schedule)
    settings = ", ".join(f"{key} = {schedule[key]}" for key in schedule if key != "name")
    yield (
        f"Whoever is asked pays, also without an answer, by the {privacy.schedule.name} schedule"
        f"{f' ({settings})' if settings else ''}; no client ever spends more than the cap."
    )
    yield f"The cap: {privacy.mechanism.describe(privacy.cap, num_parameters)}."
