"""``python -m benchmarks``: all of them; each prints ratios and writes JSON."""

from benchmarks import (
    annealing_speed,
    assignment,
    bsfl_selection,
    fedsuv_selection,
    flower_overhead,
    gaussian_process,
    ledger_cost,
    noise_speed,
    observe,
    oort_selection,
    pause_selection,
    roundless_events,
    roundless_training,
    rounds,
    schedule_speed,
    solver_speed,
    tempo_selection,
    training_memory,
    training_speed,
)

for benchmark in (
    bsfl_selection,
    observe,
    rounds,
    roundless_events,
    roundless_training,
    solver_speed,
    annealing_speed,
    noise_speed,
    pause_selection,
    schedule_speed,
    oort_selection,
    tempo_selection,
    gaussian_process,
    fedsuv_selection,
    assignment,
    ledger_cost,
    flower_overhead,
    training_speed,
    training_memory,
):
    print(f"\n== {(benchmark.__doc__ or '').splitlines()[0]}")
    benchmark.main()
