"""The papers' claims, each of which can be run again."""

from typing import Final

from fedmuster.claims import (
    bsfl_annealing,
    bsfl_balance,
    bsfl_regret,
    bsfl_sensitivity,
    bsfl_training,
    cocs_accuracy_sweeps,
    cocs_nonconvex,
    cocs_sensitivity,
    cocs_solvers,
    cocs_training,
    cocs_utility,
    fedsuv_selection,
    fedsuv_tables,
    fedsuv_uncertainty,
    flower_time,
    mab_cs_accuracy,
    mab_cs_elapsed,
    mab_cs_scores,
    pause_exact,
    pause_regret,
    pause_training,
)
from fedmuster.claims.claim import Claim

CLAIMS: Final[dict[str, Claim]] = {
    claim.name: claim
    for claim in (
        bsfl_annealing.CLAIM,
        bsfl_balance.ALPHA,
        bsfl_balance.BETA,
        bsfl_regret.IID,
        bsfl_regret.NON_IID,
        bsfl_regret.LARGE,
        *bsfl_training.TRAINING,
        bsfl_sensitivity.ALPHA,
        bsfl_sensitivity.BETA,
        pause_exact.CLAIM,
        pause_regret.CLAIM,
        *pause_training.TRAINING,
        mab_cs_elapsed.CLAIM,
        *mab_cs_accuracy.TRAINING,
        mab_cs_scores.CLAIM,
        fedsuv_selection.CLAIM,
        fedsuv_uncertainty.CLAIM,
        *fedsuv_tables.TABLES,
        cocs_utility.CLAIM,
        cocs_nonconvex.CLAIM,
        cocs_sensitivity.BUDGET,
        cocs_sensitivity.DEADLINE,
        cocs_solvers.CLAIM,
        *cocs_training.TRAINING,
        cocs_accuracy_sweeps.BUDGET,
        cocs_accuracy_sweeps.PARTICIPANTS,
        flower_time.CLAIM,
    )
}
