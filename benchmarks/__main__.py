"""``python -m benchmarks``: all of them; each prints ratios and writes JSON."""

from benchmarks import annealing_speed, bsfl_selection, observe, rounds, solver_speed

for benchmark in (bsfl_selection, observe, rounds, solver_speed, annealing_speed):
    print(f"\n== {(benchmark.__doc__ or '').splitlines()[0]}")
    benchmark.main()
