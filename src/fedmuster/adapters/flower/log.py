"""What happens, told in Flower's own log, so that ``flwr run --stream`` shows it."""

from flwr.common.logger import FLOWER_LOGGER


def say(text: str) -> None:
    """What an operator may want to know."""
    FLOWER_LOGGER.info("fedmuster: %s", text)


def warn(text: str) -> None:
    """What an operator should look into."""
    FLOWER_LOGGER.warning("fedmuster: %s", text)
