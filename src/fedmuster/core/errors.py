"""Every error that fedmuster raises on purpose.

One root, so that ``except FedmusterError`` catches all of them; each child also subclasses the
builtin that a reader would expect. A message says who complains, what came, what was expected
and what to do.
"""

from functools import partial


class FedmusterError(Exception):
    """Root of all errors that fedmuster raises on purpose."""


class ConfigError(FedmusterError, ValueError):
    """A hyper-parameter, a spec or a command-line argument is wrong.

    ``key`` is the path of the offending key, for example ``("policy", "alpha")``, where known.
    """

    def __init__(self, message: str, *, key: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.key = key


class UnknownNameError(ConfigError):
    """A name that no registry knows, or whose class cannot be imported."""


class DataError(FedmusterError, ValueError):
    """An array that describes clients or rounds has the wrong type, shape or values."""


class FeedbackError(FedmusterError, ValueError):
    """A whole feedback message cannot be used; nothing of it was counted."""


class CallOrderError(FedmusterError, RuntimeError):
    """``select`` and ``observe`` were not called in turn."""


class PolicyError(FedmusterError, RuntimeError):
    """A policy broke its contract, for example by choosing a client that is not available."""


class StateError(FedmusterError, RuntimeError):
    """A saved state or journal is missing, damaged, in use, or belongs to something else."""


class InUseError(StateError):
    """Another process has it open."""


class LedgerError(StateError):
    """A privacy ledger cannot be trusted or written; nobody may be asked.

    Debits may be on record all the same, which only means that clients have paid for nothing.
    """


class BudgetError(FedmusterError, RuntimeError):
    """A debit would spend more privacy than a client has; nothing was debited."""


class MissingExtraError(FedmusterError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'fedmuster[{extra}]'")
        self._again = partial(MissingExtraError, package, extra=extra, purpose=purpose)

    def __reduce__(self) -> tuple[partial["MissingExtraError"], tuple[()]]:
        return self._again, ()  # so that it comes back whole from a worker process
