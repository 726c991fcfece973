"""The cases: experiments as TOML texts, and what is digested of each beside its journals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ROUNDS = 18

POLICIES = {
    "bsfl": "",
    "pause": "",
    "fedcs": "",
    "extended-fedcs": "",
    "naive-mab-cs": "",
    "element-wise-mab-cs": "",
    "fedsuv": "",
    "oort": "",
    "refl": "",
    "safa": "",
    "tifl": "",
    "cs-ucb": "",
    "cs-ucb-q": "",
    "rbcs-f": "",
    "power-of-choice": "",
    "clustered-sampling": "",
    "random": "",
    "all-clients": "",
    "fastest": "",
    "genie": "",
}
"""Flat policies with default settings."""

VARIANTS = {
    "bsfl-windowed": 'name = "bsfl", alpha = 3.0, estimator = { name = "windowed", window = 5 }',
    "bsfl-discounted": 'name = "bsfl", beta = 1.5, estimator = { name = "discounted" }',
    "bsfl-discounted-fast": (
        'name = "bsfl", tau_min_seconds = 0.2, estimator = { name = "discounted", discount = 0.8 }'
    ),
    "bsfl-brute-force": 'name = "bsfl", solver = { name = "brute-force" }',
    "bsfl-swap": 'name = "bsfl", solver = { name = "annealing", neighbourhood = "swap" }',
    "bsfl-alsa": 'name = "bsfl", solver = { name = "annealing", steps = 200 }',
    "bsfl-pause": (
        'name = "bsfl", solver = { name = "annealing", neighbourhood = "pause", '
        "steps = 150, kappa = 0.5 }"
    ),
    "pause-uniform": (
        'name = "pause", alpha = 10.0, gamma = 2.0, '
        'schedule = { name = "uniform", participations = 12 }'
    ),
    "pause-harmonic": (
        'name = "pause", beta = 1.0, schedule = { name = "harmonic" }, '
        'estimator = { name = "windowed" }'
    ),
    "pause-listed": (
        'name = "pause", zeta = 0.5, schedule = { name = "listed" }, '
        'estimator = { name = "discounted" }'
    ),
    "pause-brute-force": 'name = "pause", solver = { name = "brute-force" }',
    "pause-annealing": (
        'name = "pause", solver = { name = "annealing", neighbourhood = "pause", steps = 150 }'
    ),
    "pause-swap": (
        'name = "pause", solver = { name = "annealing", neighbourhood = "swap", steps = 150 }'
    ),
    "fedcs-part": 'name = "fedcs", request_fraction = 0.5',
    "extended-fedcs-part": 'name = "extended-fedcs", request_fraction = 0.6, window = 2',
    "naive-mab-cs-part": 'name = "naive-mab-cs", request_fraction = 0.6, alpha = 50.0',
    "element-wise-mab-cs-part": 'name = "element-wise-mab-cs", request_fraction = 0.7, beta = 1.9',
    "fedsuv-matern": (
        'name = "fedsuv", delta = 0.3, rho = 0.2, use_data_size = false, '
        'gp = { kernel = "matern-5/2", individual = true, refit_growth = 1.3 }'
    ),
    "fedsuv-features": (
        'name = "fedsuv", regularisation = 2.0, '
        "gp = { exact_up_to = 0, num_features = 16, fit = false, length_scale = 0.5 }"
    ),
    "oort-other": (
        'name = "oort", exploration = 0.5, exploration_floor = 0.1, slow_penalty = 1.0, '
        "cut_off = 0.8, clip = 0.7, staleness = 0.5, blacklist_rounds = 4, "
        "pacer = { window = 3, step = 10.0 }"
    ),
    "refl-other": 'name = "refl", memory = 0.5, rest_rounds = 2, beta = 0.5, max_staleness = 3',
    "safa-strict": 'name = "safa", lag_tolerance = 1',
    "tifl-other": (
        'name = "tifl", num_tiers = 3, interval = 4, credits = [9, 9, 9], profiling_rounds = 2, '
        "profiled_share = 0.8, timeout_seconds = 5.0"
    ),
    "cs-ucb-max": 'name = "cs-ucb", tau_max_seconds = 3.0',
    "cs-ucb-q-other": (
        'name = "cs-ucb-q", fairness = 0.8, queue_weight = 0.9, tau_max_seconds = 4.0'
    ),
    "rbcs-f-annealing": (
        'name = "rbcs-f", beta = 0.3, alpha = 0.5, patience = 5.0, '
        'solver = { name = "annealing", steps = 150 }'
    ),
    "rbcs-f-brute-force": (
        'name = "rbcs-f", regularisation = 0.5, solver = { name = "brute-force" }'
    ),
    "power-of-choice-few": 'name = "power-of-choice", num_candidates = 6',
    "random-by-data": 'name = "random", by_data = true',
    "genie-private": (
        'name = "genie", alpha = 10.0, gamma = 2.0, '
        'schedule = { name = "uniform", participations = 50 }'
    ),
}
"""Flat policies with other settings, by label."""

FLAT_WORLDS = {
    "bsfl-groups": "num_clients = 20, cohort_size = 4, num_groups = 5",
    "bsfl-rates": "num_clients = 16, cohort_size = 4",
    "pause-groups": "num_clients = 16, cohort_size = 4",
    "latency": "num_clients = 18, cohort_size = 5",
    "trace": 'path = "latency.csv", cohort_size = 4',
    "contextual": "num_clients = 16, cohort_size = 4",
    "lte-cell": "num_clients = 16, cohort_size = 4",
    "devices": "num_clients = 20, cohort_size = 4, batch_size = 5, local_steps = 4",
    "validity-utility": "num_clients = 20, cohort_size = 4",
}

SETTINGS = {
    "bernoulli": ("bsfl-groups", 'availability = { name = "bernoulli", probability = 0.6 }'),
    "bernoulli-rare": ("bsfl-rates", 'availability = { name = "bernoulli", probability = 0.1 }'),
    "markov": ("latency", 'availability = { name = "markov", up = 0.3, down = 0.2 }'),
    "on-off": (
        "pause-groups",
        'availability = { name = "on-off", share = 0.5, period_seconds = 20.0 }',
    ),
    "activity-trace": (
        "latency",
        'availability = { name = "activity-trace", path = "activity.csv" }',
    ),
    "periods": (
        "bsfl-groups",
        'availability = { name = "activity-trace", path = "periods.csv" }',
    ),
    "dropout": ("bsfl-rates", "dropout = 0.3, deadline_seconds = 4.0"),
    "deadline": ("latency", "deadline_seconds = 1.0"),
    "over-selection": ("latency", "over_selection = 1.6"),
    "over-selection-dropout": (
        "bsfl-groups",
        "over_selection = 2.0, dropout = 0.2, deadline_seconds = 0.7",
    ),
    "exponential-sizes": ("bsfl-rates", 'data = { name = "exponential-sizes" }'),
    "uniform-sizes": ("latency", 'data = { name = "uniform-sizes", low = 5, high = 50 }'),
    "forecast": (
        "latency",
        'forecast_accuracy = 0.5, availability = { name = "markov", up = 0.2, down = 0.3 }',
    ),
    "normal": ("latency", 'distribution = { name = "normal" }, spacing = "even"'),
    "log-normal": (
        "latency",
        'distribution = { name = "log-normal" }, tau_min_seconds = 0.2, fastest_seconds = 0.3',
    ),
    "clusters": ("pause-groups", "num_clusters = 4, cluster_delay_seconds = 0.2"),
    "rest-fast": ("bsfl-rates", 'rest = "fast", fast_share = 0.2'),
    "bootstrap": ("trace", 'mode = "bootstrap"'),
    "lte-parallel": ("lte-cell", 'uploads = "parallel", eta = 1.9'),
    "lte-steady": ("lte-cell", "fluctuating = false, deadline_seconds = 200.0"),
    "device-trace": ("devices", 'devices = { name = "device-trace", path = "devices.csv" }'),
    "devices-always": ("devices", 'availability = { name = "always" }, deadline_seconds = 20.0'),
    "attributes": ("validity-utility", "num_attributes = 2, attribute_noise = 0.5"),
    "contextual-noise": ("contextual", "noise_sd_seconds = 1.0, deadline_seconds = 6.0"),
}
"""By name: a flat world, and settings that are added to its own."""

ASKED_IN_SETTINGS = (
    "bsfl",
    "element-wise-mab-cs",
    "fedsuv",
    "oort",
    "refl",
    "safa",
    "tifl",
    "rbcs-f",
    "random",
)

EDGE_POLICIES = {
    "cocs": 'name = "cocs"',
    "cocs-zooming": (
        'name = "cocs", cubes = { name = "zooming", depth = 3 }, pool = "clients", '
        'exploration = 0.1, solver = { name = "exact" }'
    ),
    "cocs-network": (
        'name = "cocs", cubes = { name = "uniform", cubes_per_axis = 2 }, pool = "network", '
        'exploration = 0.05, solver = { name = "fl-greedy" }'
    ),
    "cocs-edges": (
        'name = "cocs", pool = "edges", holder_alpha = 0.5, exponent = 0.3, exploration = 0.2'
    ),
    "cucb": 'name = "cucb"',
    "cucb-few": 'name = "cucb", num_arms = 5',
    "linucb": 'name = "linucb"',
    "linucb-decisions": (
        'name = "linucb", alpha = 0.3, learns_from = "decisions", '
        'solver = { name = "fl-greedy", utility = "linear" }'
    ),
    "linucb-exact": 'name = "linucb", regularisation = 3.0, solver = { name = "exact" }',
    "oracle": 'name = "oracle"',
    "oracle-outcome": 'name = "oracle", knows = "outcome", solver = { name = "exact" }',
    "oracle-greedy": 'name = "oracle", solver = { name = "fl-greedy", epsilon = 0.1 }',
    "random": 'name = "random"',
    "random-by-data": 'name = "random", by_data = true',
    "lifted-exact": 'name = "lifted", policy = { name = "bsfl" }, solver = { name = "exact" }',
    "lifted-greedy": (
        'name = "lifted", policy = { name = "cs-ucb" }, solver = { name = "fl-greedy" }'
    ),
}
EDGE_WORLDS = {
    "edge-network": "num_clients = 16, num_edges = 3",
    "edge-waypoint": (
        "num_clients = 14, num_edges = 2, budget = 5.0, cohort_size = 5, "
        'mobility = { name = "random-waypoint" }, deadline_seconds = 4.0'
    ),
    "edge-distance": (
        "num_clients = 12, num_edges = 4, spacing_km = 1.5, dropout = 0.2, at_least = 2, "
        'mobility = { name = "redrawn", uniform = "distance" }, radio = { shadowing_db = 2.0 }, '
        'availability = { name = "bernoulli", probability = 0.7 }'
    ),
}

DIGITS = 'data = { name = "digits", train_limit = 240, test_limit = 60 }'
SMALL = f'{DIGITS}, model = {{ name = "mlp", hidden = [8] }}, evaluate_every = 3'
LOGISTIC = f'{DIGITS}, model = {{ name = "logistic" }}, evaluate_every = 3'
OWN_IMAGES = 'data = { name = "own", factory = "tests.digests.own:images" }'
FEW_STEPS = "local = { batch_size = 4, steps = 1 }, evaluate_every = 2"

TRAININGS = {
    "logistic": f'{DIGITS}, model = {{ name = "logistic" }}',
    "mlp": SMALL,
    "mlp-deep": f'{DIGITS}, model = {{ name = "mlp", hidden = [12, 6] }}',
    "regression-linear": (
        'data = { name = "linear-regression", num_train = 200, num_test = 50 }, '
        'model = { name = "linear" }, local = { learning_rate = 0.02 }'
    ),
    "regression-mlp": (
        'data = { name = "linear-regression", num_features = 4, num_train = 200, num_test = 50 }, '
        'model = { name = "mlp", hidden = [5] }, local = { learning_rate = 0.02 }'
    ),
    "synthetic": (
        'data = { name = "synthetic-logistic", num_owners = 16, num_features = 10, '
        'num_classes = 4 }, partition = { name = "natural" }, model = { name = "logistic" }'
    ),
    "synthetic-iid": (
        'data = { name = "synthetic-logistic", num_owners = 16, iid = true, num_features = 8 }, '
        'model = { name = "mlp", hidden = [6] }'
    ),
    "own-data": (
        'data = { name = "own", factory = "tests.digests.own:points" }, '
        'model = { name = "logistic" }'
    ),
    **{
        f"partition-{name.split()[0]}": f'{SMALL}, partition = {{ name = "{kind}"{settings} }}'
        for name, kind, settings in (
            ("iid-random", "iid", ", stratified = false"),
            ("dirichlet-labels", "dirichlet-labels", ", alpha = 0.3, min_samples = 2"),
            ("dirichlet-sizes", "dirichlet-sizes", ""),
            ("dirichlet-sizes-other", "dirichlet-sizes", ", alpha = 1.0, smallest = 0.01"),
            ("shards", "shards", ""),
            ("exponential-quality", "exponential-quality", ""),
            ("exponential-labels", "exponential-quality", ", label_alpha = 0.5, noise = 1.0"),
        )
    },
    **{
        f"server-{name}": f"{SMALL}, server = {{ {text} }}"
        for name, text in {
            "uniform": 'name = "fedavg", weights = "uniform"',
            "clip": 'name = "fedavg", clip_norm = 0.1',
            "median": 'name = "median"',
            "trimmed-mean": 'name = "trimmed-mean", trim = 0.3',
            "fedavgm": 'name = "fedavgm"',
            "fedavgm-median": (
                'name = "fedavgm", momentum = 0.5, combine = { name = "coordinate-median" }'
            ),
            "fedadagrad": 'name = "fedadagrad", combine = { name = "uniform-mean" }',
            "fedadam": 'name = "fedadam"',
            "fedadam-trimmed": (
                'name = "fedadam", clip_norm = 0.5, combine = { name = "trimmed-mean", trim = 0.3 }'
            ),
            "fedyogi": 'name = "fedyogi", learning_rate = 0.05',
        }.items()
    },
    **{
        f"local-{name}": f"{SMALL}, local = {{ {text} }}"
        for name, text in {
            "epochs": "epochs = 2, batch_size = 7",
            "steps": "steps = 3, batch_size = 5",
            "full-batch": "batch_size = 0, steps = 2",
            "momentum": "momentum = 0.9, weight_decay = 0.01",
            "proximal": "proximal = 0.5, epochs = 2",
            "step-decay": 'schedule = { name = "step", every = 2, gamma = 0.5 }',
            "cosine": 'schedule = { name = "cosine", rounds = 6, floor = 0.1 }',
            "gain": "measure_gain = true",
        }.items()
    },
    "min-answers": f"{SMALL}, min_answers = 4",
}
"""Trainings in NumPy, played in a world of 12 clients."""

NETWORKS = {
    "small-cnn": f'{DIGITS}, model = {{ name = "small-cnn" }}, {FEW_STEPS}',
    "own-network": f'{DIGITS}, model = {{ name = "own", factory = "tests.digests.own:network" }}',
    "own-network-momentum": (
        f'{DIGITS}, model = {{ name = "own", factory = "tests.digests.own:network" }}, '
        "local = { momentum = 0.9, weight_decay = 0.01, proximal = 0.1, measure_gain = true }, "
        'server = { name = "fedadam" }, partition = { name = "shards" }'
    ),
    "bsfl-cnn": f'{OWN_IMAGES}, model = {{ name = "bsfl-cnn" }}, {FEW_STEPS}',
    "pause-mlp": f'{DIGITS}, model = {{ name = "pause-mlp" }}, {FEW_STEPS}',
    "pause-cnn-3": f'{OWN_IMAGES}, model = {{ name = "pause-cnn-3" }}, {FEW_STEPS}',
    "pause-cnn-3-plain": (
        f'{OWN_IMAGES}, model = {{ name = "pause-cnn-3", batch_norm = false }}, {FEW_STEPS}'
    ),
    "pause-cnn-5": f'{OWN_IMAGES}, model = {{ name = "pause-cnn-5" }}, {FEW_STEPS}',
    "mab-cs-cnn": f'{OWN_IMAGES}, model = {{ name = "mab-cs-cnn" }}, {FEW_STEPS}',
    "cocs-cnn": f'{OWN_IMAGES}, model = {{ name = "cocs-cnn" }}, {FEW_STEPS}',
    "resnet-18": f'{OWN_IMAGES}, model = {{ name = "resnet-18" }}, {FEW_STEPS}',
}
"""Trainings in PyTorch, for two or three rounds."""

SCHEDULES = {
    "geometric": 'name = "geometric", eta = 0.3',
    "uniform": 'name = "uniform", participations = 6',
    "harmonic": 'name = "harmonic", power = 1.2, offset = 2.0',
    "listed": 'name = "listed", shares = [0.4, 0.3, 0.2]',
}
MECHANISMS = {
    "laplace-vector": 'name = "laplace", mode = "vector", clip = 0.5',
    "laplace-per-coordinate": 'name = "laplace", mode = "per-coordinate"',
    "gaussian": 'name = "gaussian", delta = 1e-5',
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One experiment.

    Args:
        name: group and name, with a slash between.
        spec: the TOML text.
        quick: whether the case belongs to the quick subset.
        report: whether the numbers of its report are digested too.
        explain: a round whose explanations are digested too; 0 for none.
        portable: whether the cohorts are expected to be the same on any machine.
        arguments: of ``fedmuster compare``, in place of a spec.
    """

    name: str
    spec: str = ""
    arguments: tuple[str, ...] = ()
    quick: bool = False
    report: bool = False
    explain: int = 0
    portable: bool = True


def cases() -> list[Case]:
    """All cases."""
    found = [*_selection(), *_edges(), *_training(), *_privacy(), *_reports()]
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
    more: str = "",
) -> str:
    lines = [f"rounds = {rounds}", more, f"world = {{ {world} }}"]
    tables = {"training": training, "privacy": privacy, "watch": watch}
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
        yield Case(name=f"worlds/{world}", spec=_spec(_world(world), chosen))
        yield Case(
            name=f"worlds/{world}-quick",
            spec=_spec(_world(world), _named("bsfl", "random"), rounds=8),
            quick=True,
        )
    yield Case(
        name="policies/quick",
        spec=_spec(
            _world("latency", "deadline_seconds = 6.0"), everyone, rounds=10, more="seeds = [3]"
        ),
        quick=True,
    )
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
            spec=_spec(_world(world, settings), _named(*ASKED_IN_SETTINGS)),
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
        spec=_spec(_world("latency"), everyone, rounds=6, watch="every = 2, clients = 7"),
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
                watch="every = 4, clients = 6" if settings else "",
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
            _world("devices"),
            _named("fedsuv", "oort", "random"),
            rounds=10,
            training=LOGISTIC,
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
