"""Papers are judged by their own rules: silent clients do not rest."""

from typing import Final

from fedmuster.federation import Federation

PUBLISHED_RULES: Final = Federation(rest_after=0)
