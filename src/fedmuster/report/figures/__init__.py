"""A comparison in pictures. Needs matplotlib; every function returns a figure of its own."""

from fedmuster.core.errors import MissingExtraError

try:
    from fedmuster.report.figures.choice_figures import cohorts, selection_by_group
    from fedmuster.report.figures.curve_figures import (
        accuracy,
        leakage,
        loss,
        privacy_utility,
        regret,
        simulated_time,
    )
    from fedmuster.report.figures.edge_figures import budget_use, network_map, participants, utility
    from fedmuster.report.figures.overview import overview
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
    "utility",
    "validity_utility",
]
