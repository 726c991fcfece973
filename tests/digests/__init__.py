"""Digests of many small runs: what the runs of a source tree give, bit for bit.

``python -m tests.digests`` plays every case (``cases.py``) and compares its digests with
``expected.json``. The cases use only what users see: TOML specs and the command line.
"""
