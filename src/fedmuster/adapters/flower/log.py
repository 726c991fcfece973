"""What happens, told in Flower's own log, so that ``flwr run --stream`` shows it."""

import logging

_LOGGER = logging.getLogger("flwr")


def say(text: str) -> None:
    """What an operator may want to know."""
    _LOGGER.info("fedmuster: %s", text)


def warn(text: str) -> None:
    """What an operator should look into."""
    _LOGGER.warning("fedmuster: %s", text)
