"""The rounds as the strategy's own loop counts them."""

from collections.abc import Sequence

from fedmuster.adapters.flower.log import warn


class OwnRounds:
    """How many rounds of the strategy are over, where its loop may train several times in each.

    Flower's loop trains once a round and counts from 1, anew at each start. A ``start`` of the
    user's own may train in two phases, or count from 0. Which is its last training of a round, it
    does not say; so a round that a crash cut short is begun anew where rounds have several.

    Example:
        >>> rounds = OwnRounds()
        >>> for number in (1, 2, 3):
        ...     rounds.trains(number)
        >>> rounds.done
        3
        >>> continued = OwnRounds(rounds.to_plain())
        >>> continued.trains(1)
        >>> continued.number(1), continued.done
        (4, 4)
    """

    def __init__(self, plain: Sequence[int | bool] = (0, False, False)) -> None:
        begun, several, ended = plain
        self._several = bool(several)
        self._begun = int(begun) - (self._several and not ended)
        self._ended = True
        self._before = self._begun
        self._latest: int | None = None

    @property
    def done(self) -> int:
        """How many are over, the one that trains among them."""
        return self._begun

    @property
    def several(self) -> bool:
        """Whether rounds were seen to train more than once."""
        return self._several

    def number(self, server_round: int) -> int:
        """What the loop calls ``server_round``, counted since the first start."""
        return self._before + server_round

    def trains(self, server_round: int) -> None:
        """The loop trains."""
        self._ended = False
        if server_round != self._latest:
            self._begun += 1
        elif not self._several:
            self._several = True
            warn(
                "start of the strategy trains more than once a round: each training counts as a "
                "round for fedmuster, and a round that a crash cuts short is begun anew"
            )
        self._latest = server_round

    def end(self) -> None:
        """The loop has ended as it should."""
        self._ended = True

    def to_plain(self) -> tuple[int, bool, bool]:
        """For the record."""
        return self._begun, self._several, self._ended
