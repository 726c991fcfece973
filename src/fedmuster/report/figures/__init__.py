"""A comparison in pictures. Needs matplotlib; every function returns a figure of its own."""

from fedmuster.core.errors import MissingExtraError

try:
    from fedmuster.report.figures.convergence import score_convergence
    from fedmuster.report.figures.edges import budget_use, participants, utility
    from fedmuster.report.figures.elimination import elimination, validity_utility
    from fedmuster.report.figures.learning import accuracy, loss
    from fedmuster.report.figures.network_map import network_map
    from fedmuster.report.figures.overview import overview
    from fedmuster.report.figures.privacy import leakage, privacy_utility
    from fedmuster.report.figures.selection import cohorts, selection_by_group
    from fedmuster.report.figures.style import FORMATS, save
    from fedmuster.report.figures.totals import regret, simulated_time
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
