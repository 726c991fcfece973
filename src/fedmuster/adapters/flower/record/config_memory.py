"""What a strategy has made of the training config: schedules change it in place, round by round."""

from copy import deepcopy
from typing import Any

from flwr.app import ConfigRecord

Values = dict[str, Any]


class ConfigMemory:
    """Saves the training config as it is after a round, and puts it back after a crash.

    Args:
        saved: what :meth:`capture` returned; None where nothing is on record.

    Example:
        >>> memory = ConfigMemory()
        >>> config = memory.go_on_with(ConfigRecord({"lr": 0.1}))
        >>> config["lr"] = 0.01  # in the tenth round, say
        >>> memory.latest = config
        >>> dict(ConfigMemory(memory.capture()).go_on_with(ConfigRecord({"lr": 0.1})))
        {'lr': 0.01}
        >>> dict(ConfigMemory(memory.capture()).go_on_with(ConfigRecord({"lr": 0.5})))
        {'lr': 0.5}
    """

    def __init__(self, saved: tuple[Values, Values] | None = None) -> None:
        self._saved = saved
        self._given: Values = {}
        self._captured: Values | None = None if saved is None else saved[1]
        self.latest = ConfigRecord()
        """The one with which the strategy configured the last round."""

    def go_on_with(
        self, config: ConfigRecord | None, *, again: bool = False
    ) -> ConfigRecord | None:
        """The user's config, with what the strategy had changed where the user gives the same.

        ``again`` where this process has played rounds: then it is as the strategy has left it. (Who
        gives a new but equal one to each start of a loop gets, after a crash, one round with what
        the strategy had made of an earlier one.)
        """
        self._given = {} if config is None else deepcopy(dict(config))
        if self._saved is None:
            return config
        given_then, was = self._saved
        if again:
            for key, value in self._given.items():
                if value == was.get(key):
                    self._given[key] = given_then.get(key, value)
            return config
        # Into the user's own, for a loop of starts gives the same one again.
        config = ConfigRecord() if config is None else config
        for key in {**given_then, **was}:
            changed = not _alike(given_then, was, key)
            if changed and _alike(given_then, self._given, key):
                if key in was:
                    config[key] = was[key]
                else:
                    del config[key]
        return config

    def capture(self) -> tuple[Values, Values]:
        """What the user gave, and what has become of it."""
        self._captured = dict(self.latest)
        return self._given, self._captured

    def go_back(self) -> None:
        """Undo what a round that does not count has made of it."""
        counts = self._given if self._captured is None else self._captured
        for key in [key for key in self.latest if key not in counts]:
            del self.latest[key]
        for key, value in counts.items():
            self.latest[key] = value


def _alike(one: Values, other: Values, key: str) -> bool:
    """Whether both have it, with the same value, or neither does."""
    return (key in one) == (key in other) and one.get(key) == other.get(key)
