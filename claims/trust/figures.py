"""A picture of what adversaries gain."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Gains(Protocol):
    """What is drawn."""

    @property
    def policies(self) -> Sequence[str]:
        """By name."""

    @property
    def attacks(self) -> Sequence[str]:
        """By name."""

    def gain(self, policy: str, attack: str, *, defended: bool) -> float:
        """The share of places, over the same clients' share if they are honest."""


def gains(results: Gains) -> "Figure":
    """A dot for each policy and attack, hollow without the defence and full with it."""
    import matplotlib
    from matplotlib.figure import Figure

    from fedmuster.report.figures import style

    attacks = list(results.attacks)
    with matplotlib.rc_context(style.STYLE):
        figure = Figure(figsize=(style.WIDTH, 1.0 + 0.35 * len(attacks)), layout="constrained")
        figure.suptitle(
            "Places of the adversaries, over what the same clients get when they are honest\n"
            "(a mark for each policy; hollow without the defence, full with it)",
            x=0.01,
            ha="left",
        )
        axes = figure.subplots()
        for defended, face, shift in ((False, "none", -0.15), (True, style.look(0)[0], 0.15)):
            for place, attack in enumerate(attacks):
                values = [
                    results.gain(policy, attack, defended=defended) for policy in results.policies
                ]
                axes.plot(
                    values,
                    [place + shift] * len(values),
                    "o",
                    markersize=4,
                    markerfacecolor=face,
                    markeredgecolor=style.look(0)[0],
                )
        axes.axvline(1.5, color="#444444", linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set_yticks(range(len(attacks)), attacks)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        return figure
