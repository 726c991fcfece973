"""A comparison in pictures. Needs matplotlib; every function returns a figure of its own."""

from fedmuster.core.errors import MissingExtraError

try:
    from fedmuster.report.figures.choice_figures import cohorts, selection_by_group
    from fedmuster.report.figures.curve_figures import (
        accuracy,
        leakage,
        loss,
        overview,
        participants,
        privacy_utility,
        regret,
        simulated_time,
        utility,
    )
    from fedmuster.report.figures.edge_figures import budget_use, network_map
    from fedmuster.report.figures.job_figures import accuracy_work, slots, staleness, work
    from fedmuster.report.figures.score_figures import (
        elimination,
        score_convergence,
        validity_utility,
    )
    from fedmuster.report.figures.style import FORMATS, save
except ImportError as error:
    raise MissingExtraError("matplotlib", extra="report", purpose="drawing figures") from error

__all__ = [
    "FORMATS",
    "accuracy",
    "accuracy_work",
    "budget_use",
    "cohorts",
    "elimination",
    "leakage",
    "loss",
    "network_map",
    "overview",
    "participants",
    "privacy_utility",
    "regret",
    "save",
    "score_convergence",
    "selection_by_group",
    "simulated_time",
    "slots",
    "staleness",
    "utility",
    "validity_utility",
    "work",
]
