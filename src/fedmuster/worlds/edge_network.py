"""The world of COCS's experiments: clients that move among edge servers."""

from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.edges import EdgeView
from fedmuster.core.records import LONGEST_SECONDS, Truth
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.availability import Always
from fedmuster.worlds.laws.latency import gauss_legendre
from fedmuster.worlds.mobility import CoverageArea, Mobility, MobilityRun, Redrawn, hexagonal_spiral
from fedmuster.worlds.radio import Radio, UplinkLaw, rate_mbit_per_second, transfer_seconds
from fedmuster.worlds.round_time import RoundTime
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import WORLDS, RoundDraw, WorldRun

_NUM_MOMENTS = 12


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ReachablePairs:
    """The P pairs of a client and an edge within its reach, in one round.

    The pairs are the true entries of ``coverage`` [K, M]. ``compute_mhz`` [K] is y,
    ``compute_seconds`` [K] is q / y, the rates [P] are r_DT and r_UT in Mbit/s, ``download_mbit``
    is a_DT, ``upload_mbit`` a_UT.
    """

    coverage: BoolArray
    compute_mhz: FloatArray
    compute_seconds: FloatArray
    download_rate: FloatArray
    upload_rate: FloatArray
    download_mbit: float
    upload_mbit: float

    @property
    def client(self) -> IntArray:
        """int64[P], the client of each pair."""
        return np.nonzero(self.coverage)[0]

    def table(self, values: FloatArray, *, elsewhere: float) -> FloatArray:
        """[K, M, …], the ``values`` [P, …] of the pairs, and ``elsewhere`` where there is none."""
        table = np.full(self.coverage.shape + values.shape[1:], elsewhere)
        table[self.coverage] = values
        return table

    @property
    def stages(self) -> dict[str, FloatArray]:
        """Seconds by stage: DT and UT [K, M], LC [K]."""
        download = transfer_seconds(self.download_mbit, self.download_rate)
        upload = transfer_seconds(self.upload_mbit, self.upload_rate)
        return {
            "download_seconds": self.table(download, elsewhere=np.inf),
            "compute_seconds": self.compute_seconds,
            "upload_seconds": self.table(upload, elsewhere=np.inf),
        }

    @property
    def ready_seconds(self) -> FloatArray:
        """[P], when a client is ready to upload."""
        download = transfer_seconds(self.download_mbit, self.download_rate)
        return download + self.compute_seconds[self.client]

    @property
    def latency_seconds(self) -> FloatArray:
        """[P], COCS Eq. 5; infinite where the answer is decades away."""
        total = self.ready_seconds + transfer_seconds(self.upload_mbit, self.upload_rate)
        return np.where(total <= LONGEST_SECONDS, total, np.inf)

    @property
    def fastest_download(self) -> IntArray:
        """Of each client with an edge within reach, the pair with the fastest download."""
        client = self.client
        order = np.lexsort((self.download_rate, client))
        last = np.diff(client[order], append=-1) != 0
        return np.asarray(order[last])

    def truth(
        self, law: UplinkLaw, *, deadline: float, tau_min_seconds: float, dropout: float
    ) -> Truth:
        """What to expect of a client given its download rate and its compute alone.

        ``law`` is that of the upload rate given the download rate.
        """
        stays = 1.0 - dropout
        everywhere = np.arange(len(self.download_rate))
        left = deadline - self.ready_seconds
        success = self._arrived(law, everywhere, left[:, np.newaxis])[:, 0]
        latency, speed = self._expected(law, success, deadline)
        return Truth(
            mean_latency_seconds=stays * latency + dropout * deadline,
            mean_speed=np.clip(stays * tau_min_seconds * speed, 0.0, 1.0),
            success=self.table(np.clip(stays * success, 0.0, 1.0), elsewhere=0.0),
        )

    def _expected(
        self, law: UplinkLaw, success: FloatArray, deadline: float
    ) -> tuple[FloatArray, FloatArray]:
        """[K] each: ``E[min(tau, D)]`` and ``E[1/tau; tau <= D]`` where the download is fastest.

        By parts, with F for the law of tau: ``D - int F dt`` and ``F(D) / D + int F / t² dt``.
        """
        latency, speed = np.full(len(self.coverage), deadline), np.zeros(len(self.coverage))
        best = self.fastest_download
        client, ready = self.client[best], self.ready_seconds[best, np.newaxis]
        half = 0.5 * np.maximum(deadline - ready, 0.0)
        nodes, weights = gauss_legendre(_NUM_MOMENTS)
        passed = half * (1.0 + nodes)
        arrived = half * self._arrived(law, best, passed)
        latency[client] -= arrived @ weights
        speed[client] = success[best] / deadline + arrived / (ready + passed) ** 2 @ weights
        return latency, speed

    def _arrived(self, law: UplinkLaw, pair: IntArray, passed_seconds: FloatArray) -> FloatArray:
        """[n, …], the probability that the uploads of n pairs are done after [n, …] seconds."""
        needed = np.full(passed_seconds.shape, np.inf)
        np.divide(self.upload_mbit, passed_seconds, out=needed, where=passed_seconds > 0)
        edge = np.nonzero(self.coverage)[1]
        return law.at_least(edge[pair], self.download_rate[pair], needed)


_SAMPLE_KEY, _USUAL_KEY = 2, 3  # layout streams of their own, beside that of the data
_NUM_POSITIONS, _NUM_USUAL = 2**17, 2**14


@WORLDS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeNetwork(Setting):
    """Clients move among edge servers that have budgets and deadlines (hierarchical FL).

    In each round a client has a bandwidth b, a computing capacity y and a place; its links to
    the edges within reach fade. At an edge it takes (COCS Eq. 4, 5)

        tau = a / r_DT + q / y + a / r_UT,    r = b log2(1 + P g / N0),

    see :class:`~fedmuster.worlds.radio.Radio`. Answers report the three stages as the signals
    "download_seconds", "compute_seconds" and "upload_seconds"; then the edge aggregates for
    ``edge_seconds``. A client that takes longer than the deadline is late, and rule (6) applies.

    **What the operator sees** of a round: which edge covers which client, the context of each such
    pair, what each client costs (its price times y) and the budget. The context is ``(r_DT, y)``,
    each scaled to [0, 1]: y by its range, the rate from 0 to that of ``full_bits_per_hz`` over the
    largest bandwidth, and 1 beyond. It does not see upload rate, bandwidth, fading or latency.

    **The truth**: ``success`` is ``P(tau <= deadline | r_DT, y)`` of each pair, the paper's
    ``p_{n,m}``, see :class:`~fedmuster.worlds.radio.UplinkLaw`. The expectations that flat
    policies know are those at the edge with the fastest download. As the mean latency of a
    fading link is infinite, it is that of ``min(tau, deadline)``. In the long run all clients are
    equally fast, hence all are of one group.

    The defaults are Table I's for MNIST; :meth:`cifar` has those for CIFAR-10.

    Args:
        num_clients: N.
        num_edges: M.
        cohort_size: the most clients that all edges together may use; 0 for all clients, so that
            only the budgets limit.
        deadline_seconds: tau_dead.
        radius_km: how far an edge reaches.
        spacing_km: between neighbouring edges, which stand on a hexagonal lattice; from twice the
            radius on they share no land, with 0 all cover the same. The paper has none.
        mobility: where clients are.
        radio: their links.
        bandwidth_mhz: range of b; uniform over clients and rounds.
        compute_mhz: range of y; uniform over clients and rounds.
        download_mbit: a_DT, the size of the model.
        upload_mbit: a_UT, the size of an update.
        workload: q, in Mbyte; the paper divides it by MHz for seconds.
        price_per_mhz: its range; uniform over clients, for the whole run.
        budget: B, of each edge.
        at_least: Z of (6): an edge with fewer answers by the deadline waits until it has Z. The
            paper has none, and supposes that Z clients are always in time.
        patience: after ``patience`` deadlines an edge does not even wait for Z: a link in a deep
            fade would take hours. This package's choice.
        edge_seconds: what an edge takes to aggregate (stage EC). The paper has none.
        full_bits_per_hz: the rate from which on the context is 1, over the largest bandwidth. With
            2, the fifths of [0, 1] hold 43, 14, 9, 7 and 27 % of the contexts.

    References:
        Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu, Y. Liu, Context-Aware Online Client Selection for
        Hierarchical Federated Learning, IEEE TPDS 33(12), 2022.

    Example:
        >>> drawn = EdgeNetwork().start(seed=1).realise(1)
        >>> drawn.features.shape, drawn.edges.coverage.shape, sorted(drawn.signals)
        ((50, 3, 2), (50, 3), ['compute_seconds', 'download_seconds', 'upload_seconds'])
    """

    name: ClassVar[str] = "edge-network"
    hierarchical: ClassVar[bool] = True
    unlimited_cohort: ClassVar[int | None] = 0

    num_clients: int = 50
    num_edges: int = 3
    cohort_size: int = 0
    deadline_seconds: float | None = 3.0
    radius_km: float = 2.0
    spacing_km: float = 2.5
    mobility: Mobility = field(default_factory=Redrawn)
    radio: Radio = field(default_factory=Radio)
    bandwidth_mhz: tuple[float, float] = (0.3, 1.0)
    compute_mhz: tuple[float, float] = (2.0, 4.0)
    download_mbit: float = 0.18
    upload_mbit: float = 0.18
    workload: float = 2.41
    price_per_mhz: tuple[float, float] = (0.5, 2.0)
    budget: float = 3.5
    at_least: int = 1
    patience: float = 10.0
    edge_seconds: float = 0.1
    full_bits_per_hz: float = 2.0

    def __post_init__(self) -> None:
        check_types(self)
        self.require_count("num_clients")
        Setting.__post_init__(self)
        require(1 <= self.num_edges <= 1000, self, "num_edges", "an integer in [1, 1000]")
        self.require_deadline()
        expected = "1: an edge asks as many clients as it can pay for, and drops late answers"
        require(self.over_selection == 1, self, "over_selection", expected)
        self.require_positive(
            "radius_km", "download_mbit", "upload_mbit", "workload", "full_bits_per_hz"
        )
        self.require_range("bandwidth_mhz", "compute_mhz", "price_per_mhz")
        self.require_not_negative("spacing_km", "edge_seconds")
        require(self.budget >= 0, self, "budget", "a number >= 0, or infinity for no limit")
        require(self.at_least >= 0, self, "at_least", "an integer >= 0")
        require(self.patience >= 1, self, "patience", "a number >= 1, or infinity")

    @classmethod
    def cifar(cls, **others: Any) -> Self:
        """Table I's setting for CIFAR-10; ``others`` replace fields of it."""
        table: dict[str, Any] = {
            "bandwidth_mhz": (2.0, 4.0),
            "compute_mhz": (8.0, 15.0),
            "download_mbit": 18.7,
            "upload_mbit": 18.7,
            "workload": 28.3,
            "budget": 40.0,
            "deadline_seconds": 20.0,
        }
        return cls(**(table | others))

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        K, M = self.num_clients, self.num_edges
        fastest = self.workload / self.compute_mhz[1]  # no client computes faster
        price = stream(seed, LAYOUT).uniform(*self.price_per_mhz, K)
        budget = np.full(M, self.budget)
        centres = hexagonal_spiral(M, self.spacing_km)
        area = CoverageArea(centres_km=centres, radius_km=self.radius_km)
        places = self.mobility.start(area, K, step_seconds=self.deadline, seed=seed)
        law = cache(lambda: _uplink(replace(self, availability=Always()), seed))

        def clients(round_number: int, rng: Generator) -> RoundDraw:
            position = places.at(round_number)
            pairs = self._pairs(area.distance_km(position), rng)
            return RoundDraw(
                latency_seconds=pairs.table(pairs.latency_seconds, elsewhere=np.inf),
                expectation=cache(
                    lambda: pairs.truth(
                        law(), deadline=self.deadline, tau_min_seconds=fastest, dropout=self.dropout
                    )
                ),
                features=self._context(pairs),
                signals=pairs.stages,
                edges=EdgeView(
                    coverage=pairs.coverage, cost=price * pairs.compute_mhz, budget=budget
                ),
                position_km=position,
            )

        return self.begin(
            seed,
            clients,
            tau_min_seconds=fastest,
            groups=np.zeros(K, dtype=np.int64),
            num_features=2,
            usual_latency_seconds=np.full(
                K, self._usual_seconds(area, places, stream(seed, LAYOUT, _USUAL_KEY))
            ),
            columns={
                "edge_position_km": centres,
                "edge_radius_km": np.array(self.radius_km),
                "position_km": places.at(1),
                "price": price,
            },
            num_edges=M,
            time=RoundTime(
                at_least=self.at_least,
                patience_seconds=self.patience * self.deadline,
                edge_seconds=self.edge_seconds,
            ),
            rounds_only=None
            if isinstance(self.mobility, Redrawn)
            else "clients move from round to round; write mobility = { name = 'redrawn' }",
        )

    def _pairs(self, distance_km: FloatArray, rng: Generator) -> ReachablePairs:
        """Draw a round of clients at these distances from each edge."""
        coverage = distance_km <= self.radius_km
        compute = rng.uniform(*self.compute_mhz, len(coverage))
        bandwidth = rng.uniform(*self.bandwidth_mhz, len(coverage))[np.nonzero(coverage)[0]]
        log_snr = self.radio.log_snr(distance_km[coverage])
        log_snr += self.radio.shadowing_nepers * rng.standard_normal(len(log_snr))
        down, up = rng.standard_exponential((2, len(log_snr)))  # Rayleigh fading
        return ReachablePairs(
            coverage=coverage,
            compute_mhz=compute,
            compute_seconds=self.workload / compute,
            download_rate=rate_mbit_per_second(bandwidth, log_snr, down),
            upload_rate=rate_mbit_per_second(bandwidth, log_snr, up),
            download_mbit=self.download_mbit,
            upload_mbit=self.upload_mbit,
        )

    def _context(self, pairs: ReachablePairs) -> FloatArray:
        """[K, M, 2], what the operator sees of each pair; 0 where an edge does not reach."""
        rate = np.minimum(pairs.download_rate / (self.full_bits_per_hz * self.bandwidth_mhz[1]), 1)
        low, high = self.compute_mhz
        compute = (pairs.compute_mhz - low) / max(high - low, np.finfo(np.float64).tiny)
        return pairs.table(np.column_stack([rate, compute[pairs.client]]), elsewhere=0.0)

    def _usual_seconds(self, area: CoverageArea, places: MobilityRun, rng: Generator) -> float:
        """The mean of ``min(tau, deadline)`` over clients, where the download is fastest."""
        some = self._pairs(area.distance_km(places.sample(_NUM_USUAL, rng)), rng)
        return float(np.minimum(some.latency_seconds[some.fastest_download], self.deadline).mean())


@lru_cache(maxsize=16)  # all policies of a comparison ask for the same
def _uplink(world: EdgeNetwork, seed: int) -> UplinkLaw:
    radio, centres = world.radio, hexagonal_spiral(world.num_edges, world.spacing_km)
    area = CoverageArea(centres_km=centres, radius_km=world.radius_km)
    places = world.mobility.start(area, 1, step_seconds=world.deadline, seed=seed)
    position = places.sample(_NUM_POSITIONS, stream(seed, LAYOUT, _SAMPLE_KEY))
    from_edge = (np.linalg.norm(position - centre, axis=1) for centre in centres)
    near = [radio.log_snr(distance[distance <= world.radius_km]) for distance in from_edge]
    return UplinkLaw.of(near, shadowing=radio.shadowing_nepers, bandwidth_mhz=world.bandwidth_mhz)
