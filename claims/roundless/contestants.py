"""The contestants: policies in rounds and without, with equally many clients training at a time."""

from typing import Final

from claims.racing.contestant import Contestant
from fedmuster import BSFL, FedBuff, Oort, Pisces, Random
from fedmuster.federation import Federation

IN_ROUNDS: Final = Federation(rounds=True)
BUFFER_10: Final = Federation(buffer=10)
BUFFER_3: Final = Federation(buffer=3)
AS_PUBLISHED: Final = Federation()

RANDOM: Final = "random, rounds"
BSFL_ROUNDS: Final = "bsfl, rounds"
OORT_ROUNDS: Final = "oort, rounds"
FEDBUFF_10: Final = "fedbuff, buffer 10"
FEDBUFF_3: Final = "fedbuff, buffer 3"
BSFL_3: Final = "bsfl, buffer 3"
OORT_3: Final = "oort, buffer 3"
PISCES: Final = "pisces"

CONTESTANTS: Final = (
    Contestant(label=RANDOM, policy=Random(), federation=IN_ROUNDS),
    Contestant(label=BSFL_ROUNDS, policy=BSFL(), federation=IN_ROUNDS),
    Contestant(label=OORT_ROUNDS, policy=Oort(), federation=IN_ROUNDS),
    Contestant(label=FEDBUFF_10, policy=FedBuff(), federation=BUFFER_10),
    Contestant(label=FEDBUFF_3, policy=FedBuff(), federation=BUFFER_3, evaluate_every=3),
    Contestant(label=BSFL_3, policy=BSFL(), federation=BUFFER_3, evaluate_every=3),
    Contestant(label=OORT_3, policy=Oort(), federation=BUFFER_3, evaluate_every=3),
    Contestant(label=PISCES, policy=Pisces(), federation=AS_PUBLISHED, evaluate_every=5),
)
"""All of them, in the order of the tables. FedBuff chooses at random."""
