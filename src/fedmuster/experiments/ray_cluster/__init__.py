"""Sweeps beyond one machine: the cells of an experiment on a Ray cluster, with the same bits.

The machines need no file system in common. A cell travels as its files (:mod:`.images`), is
played in a temporary folder of a worker (:mod:`.worker`), and comes home every few seconds while
it is played (:mod:`.journey`). docs/clusters.md has what a user must know.
"""

from fedmuster.experiments.ray_cluster.cluster import RayCluster, check_can_travel

__all__ = ["RayCluster", "check_can_travel"]
