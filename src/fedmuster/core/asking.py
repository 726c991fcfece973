"""What a server may ask its clients before it chooses."""

from typing import Protocol

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray


class AskLoss(Protocol):
    """Asks clients how well the global model does on their data, where there is a model.

    Pure: repeats for the same arguments. What asking costs is the federation's matter.
    """

    def __call__(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        """[n], the mean loss over all samples of each client, or over ``batch_size`` of them.

        What a client answers need not be finite, nor true.
        """
        ...


class Forecast(Protocol):
    """Asks clients when they expect to be available. Pure."""

    def __call__(self, window_seconds: float) -> tuple[BoolArray, BoolArray]:
        """bool[K] each: who expects to stay from now on for so long, and who for as long again
        after that. What a client expects need not come true."""
        ...
