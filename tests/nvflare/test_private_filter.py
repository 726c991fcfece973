"""What the filter of a private client lets through, with a real ledger and FLARE's own objects."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare.apis")  # "nvflare" is also the name of this folder

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.filter import FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.job_config.api import FedJob

from fedmuster.core.errors import BudgetError, ConfigError, DataError, StateError
from fedmuster.nvflare import MusterFedAvg, PrivateFilter
from fedmuster.nvflare.grants import Grant
from fedmuster.privacy.ledger.reading import summarise
from fedmuster.privacy.mechanisms import Gaussian, Laplace, Mechanism

OWN = "gaussian:clip=1.0,delta=1e-6"
MODEL = {"w": np.zeros((20, 5), dtype=np.float32), "steps": np.array(3)}


def work(amount: float = 0.01, number: int = 1, mechanism: Mechanism | None = None) -> Shareable:
    shareable = DXO(DataKind.WEIGHTS, data=dict(MODEL)).to_shareable()
    made = mechanism or Gaussian(clip=1.0, delta=1e-6)
    Grant(run="run", round=number, amount=amount, mechanism=made).into(shareable)
    return shareable


def result(value: float = 0.05, kind: str = DataKind.WEIGHTS) -> Shareable:
    data = {"w": np.full((20, 5), value, dtype=np.float32), "steps": np.array(7)}
    meta = {"NUM_STEPS_CURRENT_ROUND": 10, "secret": 42, "initial_metrics": {"loss": 0.123}}
    return DXO(kind, data=data, meta=meta).to_shareable()


class Client:
    """Both filters of a client, as FLARE makes them, and the context of its tasks."""

    def __init__(self, folder: Path, *, max_epsilon: float = 4.0) -> None:
        self.ledger = folder / "releases.sqlite"
        self._ways = []
        for chain in (FilterChainType.TASK_DATA_CHAIN, FilterChainType.TASK_RESULT_CHAIN):
            way = PrivateFilter(OWN, max_epsilon, str(self.ledger))
            way.set_prop(FilterContextKey.CHAIN_TYPE, chain)
            self._ways.append(way)
        self._context = FLContextManager(engine=None, identity_name="site-1").new_context()

    def trains(self, received: Shareable, trained: Shareable) -> Shareable:
        self._ways[0].process(received, self._context)
        sent: Shareable = self._ways[1].process(trained, self._context)
        return sent

    def answers(self, trained: Shareable) -> Shareable:
        sent: Shareable = self._ways[1].process(trained, self._context)
        return sent

    @property
    def spent(self) -> tuple[int, int]:
        (account,) = summarise(self.ledger).top
        return account.spent_units, account.debits


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_what_leaves_is_clipped_and_noisy(tmp_path: Path, kind: str) -> None:
    client = Client(tmp_path)
    sent = from_shareable(client.trains(work(amount=0.25), result(5.0, kind)))
    assert sent.data_kind == kind
    assert sent.data.keys() == {"w"}
    assert sent.data["w"].dtype == np.float32
    noise = Gaussian(clip=1.0, delta=1e-6).noise_scale(0.25)
    # An update of norm 50 is clipped to 1; the rest is noise of 100 coordinates.
    assert np.linalg.norm(sent.data["w"]) < 1.0 + noise * 15
    assert 0.7 * noise < sent.data["w"].std() < 1.4 * noise
    assert sent.meta == {"NUM_STEPS_CURRENT_ROUND": 10.0}
    assert client.spent == (250_000_000, 1)


def test_nothing_leaves_without_a_grant(tmp_path: Path) -> None:
    client = Client(tmp_path)
    with pytest.raises(DataError):
        client.trains(DXO(DataKind.WEIGHTS, data=dict(MODEL)).to_shareable(), result())
    with pytest.raises(StateError):
        client.answers(result())
    assert not client.ledger.exists()


def test_no_round_is_released_twice(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.trains(work(), result())
    with pytest.raises(StateError):
        client.trains(work(), result())
    with pytest.raises(StateError):  # nor after a restart of the client
        Client(tmp_path).trains(work(), result())
    assert client.spent[1] == 1
    client.trains(work(number=2), result())
    assert client.spent[1] == 2


def test_no_server_gets_more_than_the_limit(tmp_path: Path) -> None:
    client = Client(tmp_path, max_epsilon=1.0)
    cap = Gaussian(clip=1.0, delta=1e-6).cap(1.0)
    with pytest.raises(BudgetError):
        client.trains(work(amount=100.0), result())
    for number in range(1, 5):
        client.trains(work(amount=cap / 4.001, number=number), result())
    with pytest.raises(BudgetError):
        client.trains(work(amount=cap / 4.001, number=5), result())
    assert client.spent[1] == 4


@pytest.mark.parametrize(
    "mechanism", [Gaussian(clip=100.0, delta=1e-6), Gaussian(clip=0.5), Laplace(clip=1.0)]
)
def test_grants_of_other_mechanisms_are_refused(tmp_path: Path, mechanism: Mechanism) -> None:
    with pytest.raises(DataError):
        Client(tmp_path).trains(work(mechanism=mechanism), result())


def test_what_cannot_be_released(tmp_path: Path) -> None:
    client = Client(tmp_path)
    odd: list[dict[str, Any]] = [
        {"w": np.zeros(3)},
        {"other": np.zeros((20, 5))},
        {"steps": np.array(7)},
        {"w": "text"},
    ]
    for data in odd:
        with pytest.raises(DataError):
            client.trains(work(), DXO(DataKind.WEIGHTS, data=data).to_shareable())
    with pytest.raises(DataError):
        client.trains(work(), DXO(DataKind.METRICS, data={"loss": 1.0}).to_shareable())
    assert not client.ledger.exists()


def test_an_update_that_is_not_finite_is_noise_around_nothing(tmp_path: Path) -> None:
    sent = from_shareable(Client(tmp_path).trains(work(), result(np.nan)))
    assert np.isfinite(sent.data["w"]).all()


def test_errors_say_no_more_than_their_code(tmp_path: Path) -> None:
    failed = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    failed["detail"] = "row 17 of the patient table"
    sent = Client(tmp_path).trains(work(), failed)
    assert sent.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert "detail" not in sent


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        '{"run": "r"}',
        '{"run": "r", "round": 0, "amount": 1, "mechanism": {"name": "gaussian"}}',
        '{"run": "r", "round": 1, "amount": NaN, "mechanism": {"name": "gaussian"}}',
        '{"run": "r", "round": 1, "amount": "1", "mechanism": {"name": "gaussian"}}',
        '{"run": "r", "round": 1, "amount": 1, "mechanism": {"name": "os:system"}}',
        "[" * 3_000,
    ],
)
def test_grants_that_cannot_be_read(text: Any) -> None:
    shareable = Shareable()
    if text is not None:
        shareable.set_header("fedmuster_grant", text)
    with pytest.raises(DataError):
        Grant.of(shareable)


def test_limits_that_cannot_be() -> None:
    for wrong in ((OWN, 0.0, "/x"), (OWN, 4.0, "relative"), ("no-such", 4.0, "/x")):
        with pytest.raises(ConfigError):
            PrivateFilter(*wrong)


def test_one_line_filters_both_ways(tmp_path: Path) -> None:
    job = FedJob(name="job", min_clients=1)
    job.to_clients(PrivateFilter(OWN, 4.0, "/var/lib/site/releases.sqlite"), tasks=["train"])
    job.to_server(MusterFedAvg())
    job.export_job(str(tmp_path))
    (config,) = tmp_path.rglob("config_fed_client.json")
    text = config.read_text()
    assert text.count("fedmuster.nvflare.private_filter.PrivateFilter") == 2
    assert not list(tmp_path.rglob("fedmuster"))
