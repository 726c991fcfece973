"""A round of clients at edge servers, pair by pair, and what is to be expected of it."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import LONGEST_SECONDS, BoolArray, FloatArray, IntArray, Truth
from fedmuster.worlds.quadrature import gauss_legendre
from fedmuster.worlds.radio import transfer_seconds
from fedmuster.worlds.uplink import UplinkLaw

_NUM_MOMENTS = 12


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pairs:
    """The P pairs of a client and an edge within reach, in one round.

    Args:
        coverage: bool[K, M], who reaches which edge; the pairs are where it is true, row by row.
        compute_mhz: [K], y.
        compute_seconds: [K], q / y.
        download_rate: [P], r_DT in Mbit/s.
        upload_rate: [P], r_UT.
        download_mbit: a_DT.
        upload_mbit: a_UT.
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
        """int64[P]."""
        return np.nonzero(self.coverage)[0]

    @property
    def edge(self) -> IntArray:
        """int64[P]."""
        return np.nonzero(self.coverage)[1]

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
        upload = transfer_seconds(self.upload_mbit, self.upload_rate)
        total = self.ready_seconds + upload  # COCS Eq. 5
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

        Args:
            law: of the upload rate given the download rate.
            deadline: tau_dead, in seconds.
            tau_min_seconds: the shortest latency there can be.
            dropout: probability that a client never answers.
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
        return law.at_least(self.edge[pair], self.download_rate[pair], needed)
