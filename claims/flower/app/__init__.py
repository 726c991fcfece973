"""A Flower app: digits, learned by nodes of different speed, whoever chooses them.

Its files are copied into a folder of their own and run from there (``flower_race.py``), as users'
apps are; so they import each other relatively, and of fedmuster no more than they need, for in a
deployment every message starts a process.
"""
