"""A private ClientApp in one process: what it is sent, and what leaves it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from numpy.typing import NDArray

from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.reporting_mod import ReportingMod
from fedmuster.flower.wire import Ask, PrivacyGrant
from fedmuster.privacy.mechanisms import Gaussian

Arrays = Mapping[str, NDArray[Any]]
Training = Callable[[Arrays], Arrays]

MODEL = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scale": np.array(2.0),
    "batches": np.array([3, 4], dtype=np.int64),
}
SHARP = PrivacyGrant.on(Gaussian(clip=1.0), 1e6)  # noise of σ = 1.4e-3: one can see what was sent
MODS = (PrivateMod(), ReportingMod())
KINDS = ("train", "evaluate", "query")


def train_a_bit(model: Arrays) -> Arrays:
    """The weights move by 2, the scale by 1, and a counter counts the client's samples."""
    step = {"weight": np.float32(2.0), "scale": 1.0, "batches": 77}
    return {name: np.asarray(array + step[name], array.dtype) for name, array in model.items()}


def app_that(train: Training, mods: Sequence[Mod] = MODS) -> ClientApp:
    app = ClientApp(mods=list(mods))

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        sent = message.content.array_records["arrays"]
        assert list(message.content) == ["arrays"]  # nothing of ours
        trained = train({name: array.numpy() for name, array in sent.items()})
        sent.clear()  # what an app does to its message is its own business
        content = RecordDict(
            {
                "arrays": arrays_of(trained),
                "metrics": MetricRecord({"num-examples": 8, "SECRET": 1.0, "loss": 0.125}),
                "more": ConfigRecord({"patient": "SECRET"}),
            }
        )
        return Message(content, reply_to=message)

    @app.evaluate()
    @app.query()
    def measure(message: Message, context: Context) -> Message:
        return Message(RecordDict({"m": MetricRecord({"loss": 0.125})}), reply_to=message)

    return app


def grid_of(app: ClientApp, **config: Any) -> InProcessGrid:
    return InProcessGrid(app, [Node(1, config)])


def send(
    grid: InProcessGrid,
    grant: PrivacyGrant | None = SHARP,
    *,
    model: Arrays = MODEL,
    run: str = "r",
    round_: int = 1,
) -> Message:
    content = RecordDict({"arrays": arrays_of(model)})
    if grant is not None:
        Ask(run=run, round=round_, measure_gain=True, grant=grant).into(content)
    (reply,) = grid.send_and_receive([Message(content, 1, "train")])
    return reply


def received(reply: Message) -> dict[str, NDArray[Any]]:
    assert not reply.has_error(), reply.error
    record = reply.content.array_records["arrays"]
    return {name: array.numpy() for name, array in record.items()}


def everything_in(reply: Message) -> bytes:
    """All that leaves the client."""
    if reply.has_error():
        return repr(reply.error).encode()
    leaves: list[Any] = [reply, reply.content, *reply.content.values()]
    return b"".join(part.deflate() for part in leaves)


def arrays_of(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
