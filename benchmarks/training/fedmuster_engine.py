"""Ours, as an experiment uses it: the trainer with its server, checks and signals."""

import numpy as np

from benchmarks.training.turns import Turns
from benchmarks.training.workloads import SEED, Tensors, Workload
from fedmuster.core.records import IntArray
from fedmuster.training.engines.numpy_engine import NumpyEngine
from fedmuster.training.engines.torch_engine import TorchEngine
from fedmuster.training.models import MLP, Linear, Logistic
from fedmuster.training.networks import COCSCNN, SmallCNN
from fedmuster.training.servers import Answers
from fedmuster.training.trainer import Trainer
from fedmuster.training.training_records import Engine, FederatedData


def engine(workload: Workload, data: FederatedData, workers: int) -> Engine:
    """The engine that the workload's model asks for."""
    match workload.model:
        case "linear":
            return NumpyEngine(Linear(), data, workload.local, SEED)
        case "softmax":
            return NumpyEngine(Logistic(), data, workload.local, SEED)
        case "mlp":
            return NumpyEngine(MLP(hidden=(64,)), data, workload.local, SEED)
        case "small-cnn":
            return TorchEngine(SmallCNN(), data, workload.local, SEED, workers=workers)
        case "cocs-cnn":
            return TorchEngine(COCSCNN(), data, workload.local, SEED, workers=workers)


def train_round(trainer: Trainer, clients: IntArray, number: int) -> None:
    """One round in which every client answers."""
    starts, only = trainer.starts(clients, None, number), np.zeros_like(clients)
    sent = trainer.send(clients, starts, np.full(len(clients), number))
    answers = Answers(
        round=number,
        updates=sent.updates,
        starts=starts,
        ages=only,
        used=sent.usable,
        asked=clients,
    )
    trainer.aggregate(answers, sent_to=only, asked_at=only, now_seconds=0.0)


def play(turns: Turns, _name: str, workload: Workload, *, workers: int = 1) -> Tensors:
    """Train round by round, without evaluation."""
    data = workload.data()
    trainer = Trainer(
        engine(workload, data, workers), data, evaluate_every=workload.total_rounds + 1
    )
    tensors = [tensor.detach().numpy() for tensor in workload.network().parameters()]
    trainer.parameters = np.concatenate([tensor.ravel() for tensor in tensors])
    for number in turns:
        train_round(trainer, workload.cohort(number), number)
    ends = np.cumsum([tensor.size for tensor in tensors])[:-1]
    flat = np.split(trainer.parameters, ends)
    return [part.reshape(tensor.shape) for part, tensor in zip(flat, tensors, strict=True)]
