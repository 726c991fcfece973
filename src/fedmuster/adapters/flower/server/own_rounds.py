"""The rounds as the strategy's own loop counts them."""

from collections.abc import Sequence

from fedmuster.adapters.flower.log import warn


class OwnRounds:
    """How many rounds of the strategy are over, where its loop may train several times in each.

    Flower's loop trains once a round and counts from 1, anew at each start. A ``start`` of the
    user's own may train in two phases, or count from 0. Which is its last training of a round, it
    does not say; so a round that a crash cut short is begun anew where rounds have several. (That
    they do is seen in the second training of the first.) It may also end before its last round.

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

    def __init__(self, plain: Sequence[int | bool] = (0, False, 0)) -> None:
        begun, several, ended_for = plain
        self._several = bool(several)
        self._begun = int(begun) - (self._several and not ended_for)
        self._ended_for = int(ended_for)
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

    def over(self, rounds_asked: int) -> bool:
        """Whether so many are done, or the loop has ended by itself when it was asked for them."""
        return self._begun >= rounds_asked or self._ended_for >= rounds_asked

    def as_flower_counts(self, rounds_asked: int) -> bool:
        """Whether the loop has trained once in each of these rounds, as Flower's does."""
        return not self._several and self._begun == rounds_asked

    def number(self, server_round: int) -> int:
        """What the loop calls ``server_round``, counted since the first start."""
        return self._before + server_round

    def trains(self, server_round: int) -> None:
        """The loop trains."""
        self._ended_for = 0
        if server_round != self._latest:
            self._begun += 1
        elif not self._several:
            self._several = True
            warn(
                "start of the strategy trains more than once a round: each training counts as a "
                "round for fedmuster, and a round that a crash cuts short is begun anew"
            )
        self._latest = server_round

    def end(self, rounds_asked: int) -> None:
        """The loop has ended as it should, when it was asked for so many rounds in all."""
        self._ended_for = rounds_asked

    def to_plain(self) -> tuple[int, bool, int]:
        """For the record."""
        return self._begun, self._several, self._ended_for
