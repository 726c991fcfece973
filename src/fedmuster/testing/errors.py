"""What is raised when a policy breaks its contract."""

from fedmuster.core.errors import PolicyError


class ContractError(PolicyError):
    """A policy broke a point of the contract.

    Args:
        point: the number of the point.
        message: what the policy did, and what it must do.
    """

    def __init__(self, point: int, message: str) -> None:
        super().__init__(point, message)
        self.point = point
        self.message = message

    def __str__(self) -> str:
        return f"point {self.point}: {self.message}"
