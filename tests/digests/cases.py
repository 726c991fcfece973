"""The cases: experiments as TOML texts, and what is digested of each beside its journals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.digests.ingredients import (
    ASKED_IN_SETTINGS,
    EDGE_POLICIES,
    EDGE_WORLDS,
    FLAT_WORLDS,
    LOGISTIC,
    MECHANISMS,
    NETWORKS,
    POLICIES,
    ROUNDLESS,
    SCHEDULES,
    SETTINGS,
    SMALL,
    TRAININGS,
    VARIANTS,
)

ROUNDS = 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One experiment.

    Args:
        name: group and name, with a slash between.
        spec: the TOML text.
        quick: whether the case belongs to the quick subset.
        report: whether the numbers of its report are digested too.
        explain: a round whose explanations are digested too; 0 for none.
        arguments: of ``fedmuster compare``, in place of a spec.
        selectors: policies that are played through ``Selector``, in place of a spec.
    """

    name: str
    spec: str = ""
    arguments: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    quick: bool = False
    report: bool = False
    explain: int = 0


def cases() -> list[Case]:
    """All cases."""
    found = [*_selection(), *_edges(), *_training(), *_privacy(), *_reports(), *_roundless()]
    names = [case.name for case in found]
    assert len(names) == len(set(names))
    return found


def _spec(
    world: str,
    policies: Mapping[str, str],
    *,
    rounds: int = ROUNDS,
    training: str = "",
    privacy: str = "",
    watch: str = "",
    federation: str = "",
    more: str = "",
) -> str:
    lines = [f"rounds = {rounds}", more, f"world = {{ {world} }}"]
    tables = {"training": training, "privacy": privacy, "watch": watch, "federation": federation}
    lines += [f"{name} = {{ {text} }}" for name, text in tables.items() if text]
    lines += ["policy = ["]
    lines += [f'  {{ label = "{label}", {text} }},' for label, text in policies.items()]
    return "\n".join([*lines, "]", ""])


def _world(name: str, more: str = "") -> str:
    settings = {**FLAT_WORLDS, "edge-network": "num_clients = 12"}[name]
    return ", ".join(filter(None, [f'name = "{name}"', settings, more]))


def _named(*names: str) -> dict[str, str]:
    return {name: VARIANTS.get(name, f'name = "{name}"') for name in names}


def _selection() -> Iterator[Case]:
    everyone = _named(*POLICIES, *VARIANTS)
    for number, world in enumerate(FLAT_WORLDS):
        chosen = _named(*POLICIES, *list(VARIANTS)[number % 3 :: 3])  # each in three worlds
        yield Case(name=f"worlds/{world}", spec=_spec(_world(world), chosen, watch="every = 5"))
        yield Case(
            name=f"worlds/{world}-quick",
            spec=_spec(_world(world), _named("bsfl", "random"), rounds=8, watch="every = 4"),
            quick=True,
        )
    yield Case(
        name="policies/quick",
        spec=_spec(
            _world("latency", "deadline_seconds = 6.0"),
            everyone,
            rounds=10,
            more="seeds = [3]",
            watch="every = 3",
        ),
        quick=True,
    )
    yield Case(name="policies/selectors", selectors=POLICIES, quick=True)
    yield Case(
        name="policies/longer",
        spec=_spec(
            _world("bsfl-rates", 'availability = { name = "bernoulli", probability = 0.8 }'),
            _named(*POLICIES),
            rounds=50,
            more="seeds = [7]",
        ),
    )
    for name, (world, settings) in SETTINGS.items():
        yield Case(
            name=f"settings/{name}",
            spec=_spec(_world(world, settings), _named(*ASKED_IN_SETTINGS), watch="every = 6"),
        )
    yield Case(
        name="settings/seconds",
        spec=_spec(_world("bsfl-rates"), _named("bsfl", "random"), more="seconds = 12.5"),
        quick=True,
    )
    yield Case(
        name="settings/reward",
        spec=_spec(
            _world("pause-groups", "num_clusters = 4"),
            {
                "pause": 'name = "pause", rho = 0.5',
                "genie": 'name = "genie", rho = 0.5, gamma = 1.0',
                "random": 'name = "random"',
            },
            more="reward = { alpha = 5.0, beta = 1.5, gamma = 2.0, rho = 0.5, "
            'schedule = { name = "harmonic" } }',
        ),
    )
    yield Case(
        name="settings/no-regret",
        spec=_spec(_world("latency"), _named("bsfl"), more="regret = false"),
    )
    yield Case(
        name="settings/watch",
        spec=_spec(_world("latency"), _named("oort", "pause"), watch="every = 2, clients = 7"),
    )


def _edges() -> Iterator[Case]:
    lifted = {
        f"lifted-{name}": f'name = "lifted", policy = {{ {text} }}'
        for name, text in _named(*POLICIES, "bsfl-windowed", "oort-other", "fedsuv-matern").items()
        if name not in ("random",)
    }
    for name, settings in EDGE_WORLDS.items():
        regret = name != "edge-network"  # measuring it takes longest
        yield Case(
            name=f"edges/{name}",
            spec=_spec(
                f'name = "edge-network", {settings}',
                EDGE_POLICIES if regret else {**EDGE_POLICIES, **lifted},
                rounds=6,
                more="" if regret else "regret = false",
                watch="every = 2",
            ),
        )
    world = 'name = "edge-network", num_clients = 10, num_edges = 2'
    yield Case(
        name="edges/quick",
        spec=_spec(world, EDGE_POLICIES, rounds=4, watch="every = 2"),
        quick=True,
    )
    yield Case(
        name="edges/utility",
        spec=_spec(
            world,
            {name: EDGE_POLICIES[name] for name in ("cocs", "oracle", "random")},
            rounds=12,
            more='reward = { utility = "square-root" }',
        ),
    )
    few = {name: EDGE_POLICIES[name] for name in ("cocs", "random", "lifted-exact")}
    for every in (1, 3):
        yield Case(
            name=f"edges/training-{every}",
            spec=_spec(world, few, rounds=7, training=f"{SMALL}, global_every = {every}"),
            quick=every == 3,
        )
    yield Case(
        name="edges/training-adam",
        spec=_spec(
            world,
            few,
            rounds=7,
            training=f'{SMALL}, global_every = 2, server = {{ name = "fedadam" }}, '
            'partition = { name = "shards" }',
        ),
    )
    yield Case(
        name="edges/private",
        spec=_spec(
            world,
            few,
            rounds=7,
            training=f"{LOGISTIC}, global_every = 2",
            privacy='epsilon = 20.0, schedule = { name = "uniform", participations = 3 }',
        ),
    )


def _training() -> Iterator[Case]:
    world = _world("bsfl-rates", "deadline_seconds = 8.0").replace("= 16", "= 12")
    few = _named("bsfl", "random")
    quick = ("logistic", "mlp", "regression-linear", "synthetic", "server-fedadam", "own-data")
    for name, text in TRAININGS.items():
        yield Case(
            name=f"training/{name}",
            spec=_spec(world, few, rounds=7, training=text),
            quick=name in quick,
        )
    for name, text in NETWORKS.items():
        own = name.startswith("own")
        yield Case(
            name=f"networks/{name}",
            spec=_spec(
                _world("bsfl-rates", "").replace("= 16", "= 6").replace("= 4", "= 2"),
                few if own else _named("random"),
                rounds=4 if own else 1 if name in ("resnet-18", "mab-cs-cnn") else 2,
                training=text,
            ),
            quick=name in ("own-network", "small-cnn"),
        )
    learners = {
        **_named(*POLICIES, "fedsuv-matern", "oort-other", "refl-other", "tifl-other"),
        "pow-d": 'name = "power-of-choice", variant = "pow-d", num_candidates = 6',
        "cpow-d": 'name = "power-of-choice", variant = "cpow-d", batch_size = 8',
        "rpow-d": 'name = "power-of-choice", variant = "rpow-d"',
        "similarity": 'name = "clustered-sampling", by = "similarity", sketch_size = 16',
        "similarity-whole": 'name = "clustered-sampling", by = "similarity", sketch_size = 128',
    }
    for name, settings in {
        "always": "",
        "stragglers": (
            "deadline_seconds = 1.5, dropout = 0.1, "
            'availability = { name = "markov", up = 0.3, down = 0.2 }'
        ),
    }.items():
        yield Case(
            name=f"learners/{name}",
            spec=_spec(
                _world("latency", settings),
                learners,
                rounds=14,
                training=f'{SMALL}, partition = {{ name = "dirichlet-labels", alpha = 0.5 }}',
                watch="every = 4",
            ),
        )
    late = _named("refl", "refl-other", "safa", "safa-strict", "random")
    for name, server in {
        "fedavg": "",
        "adam": ', server = { name = "fedadam" }',
        "momentum": ', server = { name = "fedavgm", momentum = 0.5 }',
    }.items():
        yield Case(
            name=f"late/{name}",
            spec=_spec(
                _world("latency", "deadline_seconds = 1.0"),
                late,
                rounds=14,
                training=f'{SMALL}{server}, partition = {{ name = "shards" }}',
            ),
            quick=name == "fedavg",
        )
    yield Case(
        name="late/over-selection",
        spec=_spec(_world("latency", "over_selection = 1.5"), late, rounds=14, training=LOGISTIC),
    )
    yield Case(
        name="training/sampled",
        spec=_spec(
            _world("lte-cell", 'data = { name = "uniform-sizes", low = 5, high = 40 }'),
            _named("fedcs", "element-wise-mab-cs"),
            rounds=7,
            training=f'{SMALL}, partition = {{ name = "sampled" }}',
        ),
    )
    yield Case(
        name="training/devices",
        spec=_spec(
            _world("devices"), _named("fedsuv", "oort", "random"), rounds=10, training=LOGISTIC
        ),
    )
    yield Case(
        name="training/seconds",
        spec=_spec(
            _world("bsfl-rates", 'rest = "fast"'),
            few,
            rounds=100,
            training=LOGISTIC,
            more="seconds = 15.0\nseeds = [4, 5]\nregret = false",
        ),
    )


def _privacy() -> Iterator[Case]:
    few = {**_named("pause", "bsfl"), "free": 'name = "random", private = false'}
    world = _world("pause-groups")
    for schedule, shares in SCHEDULES.items():
        for mechanism, text in MECHANISMS.items():
            yield Case(
                name=f"privacy/{schedule}-{mechanism}",
                spec=_spec(
                    world,
                    few,
                    rounds=6,
                    training=LOGISTIC,
                    privacy=f"epsilon = 30.0, schedule = {{ {shares} }}, mechanism = {{ {text} }}",
                ),
                quick=(schedule, mechanism)
                in (
                    ("geometric", "laplace-vector"),
                    ("uniform", "laplace-per-coordinate"),
                    ("harmonic", "gaussian"),
                ),
            )
    yield Case(
        name="privacy/ends",
        spec=_spec(
            world,
            _named("pause", "random", "all-clients"),
            rounds=40,
            privacy='epsilon = 2.0, schedule = { name = "uniform", participations = 5 }',
        ),
        quick=True,
    )
    yield Case(
        name="privacy/ends-training",
        spec=_spec(
            _world("pause-groups", "deadline_seconds = 2.5, dropout = 0.1"),
            _named("pause", "pause-listed", "bsfl", "refl", "safa", "oort"),
            rounds=25,
            training=LOGISTIC,
            privacy='epsilon = 5.0, schedule = { name = "listed", shares = [0.5, 0.3] }',
        ),
    )
    yield Case(
        name="privacy/policies",
        spec=_spec(
            _world("latency", 'availability = { name = "bernoulli", probability = 0.9 }'),
            _named(*POLICIES),
            rounds=8,
            privacy='epsilon = 9.0, schedule = { name = "geometric", eta = 0.5 }',
        ),
    )


def _reports() -> Iterator[Case]:
    yield Case(
        name="reports/selection",
        spec=_spec(
            _world("bsfl-groups", 'availability = { name = "bernoulli", probability = 0.8 }'),
            _named("bsfl", "cs-ucb", "random"),
            more="seeds = [0, 1, 2]",
            watch="every = 4",
        ),
        quick=True,
        report=True,
    )
    yield Case(
        name="reports/training",
        spec=_spec(
            _world("bsfl-rates"),
            _named("bsfl", "power-of-choice", "random"),
            rounds=12,
            training=f'{SMALL}, partition = {{ name = "exponential-quality" }}',
            more="seeds = [0, 1, 2]",
        ),
        report=True,
    )
    yield Case(
        name="reports/privacy",
        spec=_spec(
            _world("pause-groups"),
            {**_named("pause", "bsfl"), "free": 'name = "random", private = false'},
            rounds=12,
            training=LOGISTIC,
            privacy='epsilon = 20.0, schedule = { name = "uniform", participations = 6 }',
            more="seeds = [0, 1]",
        ),
        report=True,
    )
    yield Case(
        name="reports/edges",
        spec=_spec(
            'name = "edge-network", num_clients = 12',
            {name: EDGE_POLICIES[name] for name in ("cocs", "oracle", "random")},
            rounds=7,
            training=f"{SMALL}, global_every = 3",
            more="seeds = [0, 1]",
            watch="every = 3",
        ),
        report=True,
    )
    yield Case(
        name="reports/fedsuv",
        spec=_spec(
            _world("validity-utility"),
            _named("fedsuv", "oort", "random"),
            more="seeds = [0, 1]",
            watch="every = 2",
        ),
        report=True,
    )
    yield Case(
        name="explanations/flat",
        spec=_spec(_world("latency"), _named(*POLICIES, *list(VARIANTS)[::3]), rounds=6),
        explain=5,
    )
    yield Case(
        name="explanations/edges",
        spec=_spec('name = "edge-network", num_clients = 10', EDGE_POLICIES, rounds=5),
        explain=4,
    )
    yield Case(
        name="explanations/watched",
        spec=_spec(
            _world("latency", "deadline_seconds = 2.0"),
            _named("bsfl", "tifl", "oort"),
            rounds=6,
            watch="every = 1",
        ),
        quick=True,
        explain=5,
    )
    yield Case(
        name="commands/compare",
        arguments=(
            *('bsfl:alpha=3,solver={name="annealing", steps=50}', "random", "pause:private=false"),
            *("--world", "pause-groups:num_clients=12,cohort_size=3"),
            *("--rounds", "6", "--seeds", "2", "--reward", "alpha=3"),
            *(
                "--training",
                'data={name="digits", train_limit=100},partition=shards,model=logistic',
            ),
            *("--privacy", 'epsilon=40,mechanism={name="laplace", clip=1.0}'),
        ),
    )


def _roundless() -> Iterator[Case]:
    """Runs without rounds: worlds, triggers, staleness rules, servers, privacy."""
    for name, (world, policies, settings) in ROUNDLESS.items():
        yield Case(
            name=f"roundless/{name}",
            spec=_spec(world, policies, rounds=12, **settings),
            quick=name in ("buffer", "stragglers", "edges-training", "fedbuff", "privacy"),
        )
