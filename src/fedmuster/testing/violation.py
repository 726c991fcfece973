"""What is raised when a policy breaks its contract."""

from fedmuster.core import errors


class ContractViolation(errors.PolicyError):
    """A policy broke a point of the contract.

    Args:
        point: the number of the point.
        message: what the policy did, and what it must do.
    """

    def __init__(self, point: int, message: str) -> None:
        super().__init__(f"point {point}: {message}")
        self.point = point
