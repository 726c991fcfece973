"""Processes that start at once: forks of a server that has imported what they need.

A fresh process imports for one to three seconds of processor time before it does anything. There is
one such server in a process, and whoever starts it first decides what it has imported: so that is
decided here, for all tests.
"""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["tests.deployment.warm", "tests.faults.children", "tests.flower.test_record", "torch"]
)
