"""Policies, worlds, trainings and privacy of the cases, as inline tables of TOML."""

POLICIES = (
    "bsfl",
    "pause",
    "fedcs",
    "extended-fedcs",
    "naive-mab-cs",
    "element-wise-mab-cs",
    "fedsuv",
    "oort",
    "refl",
    "safa",
    "tifl",
    "cs-ucb",
    "cs-ucb-q",
    "rbcs-f",
    "power-of-choice",
    "clustered-sampling",
    "random",
    "all-clients",
    "fastest",
    "genie",
)
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
    "periods": ("bsfl-groups", 'availability = { name = "activity-trace", path = "periods.csv" }'),
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


def _alike(*names: str) -> dict[str, str]:
    return {name: f'name = "{name}"' for name in names}


_BUFFER = "concurrency = 5, buffer = 2"
_LATENCY = f'name = "latency", {FLAT_WORLDS["latency"]}'
_RATES = f'name = "bsfl-rates", {FLAT_WORLDS["bsfl-rates"]}'
_EDGES = 'name = "edge-network", num_clients = 14, num_edges = 2'
_AT_EDGES = {name: EDGE_POLICIES[name] for name in ("cocs", "oracle", "random", "lifted-exact")}

ROUNDLESS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "buffer": (
        _LATENCY,
        _alike("bsfl", "oort", "refl", "random"),
        {"federation": _BUFFER, "watch": "every = 4"},
    ),
    "every-answer": (
        _RATES,
        _alike("cs-ucb", "random"),
        {"federation": "concurrency = 4, buffer = 1"},
    ),
    "refill": (
        _RATES,
        _alike("bsfl", "random"),
        {"federation": "concurrency = 5, refill = 4, buffer = 1"},
    ),
    "interval": (
        _LATENCY,
        _alike("oort", "random"),
        {"federation": 'concurrency = 4, trigger = { name = "interval", seconds = 1.5 }'},
    ),
    "stragglers": (
        f"{_LATENCY}, deadline_seconds = 1.5, dropout = 0.2, "
        'availability = { name = "markov", up = 0.3, down = 0.2 }',
        _alike("bsfl", "random"),
        {"federation": _BUFFER},
    ),
    "devices": (
        f'name = "devices", {FLAT_WORLDS["devices"]}',
        _alike("fedsuv", "random"),
        {"federation": "concurrency = 3, buffer = 2"},
    ),
    "trace": (
        f'name = "trace", {FLAT_WORLDS["trace"]}',
        _alike("oort", "random"),
        {"federation": "concurrency = 3, buffer = 2"},
    ),
    "lte-cell": (
        f'name = "lte-cell", {FLAT_WORLDS["lte-cell"]}, deadline_seconds = 900.0',
        _alike("oort", "random"),
        {"federation": "concurrency = 4, buffer = 2"},
    ),
    "contextual": (
        f'name = "contextual", {FLAT_WORLDS["contextual"]}',
        _alike("rbcs-f", "fastest", "random"),
        {"federation": _BUFFER},
    ),
    "edges": (_EDGES, _AT_EDGES, {"federation": "concurrency = 4, buffer = 2"}),
    "edges-training": (
        _EDGES,
        {name: _AT_EDGES[name] for name in ("cocs", "random")},
        {"federation": "concurrency = 4, buffer = 2", "training": f"{SMALL}, global_every = 2"},
    ),
    "fedbuff": (
        _RATES,
        {
            **_alike("fedbuff", "pisces", "oort"),
            "in-rounds": 'name = "oort", federation = "rounds"',
        },
        {
            "federation": _BUFFER,
            "training": f'{SMALL}, partition = {{ name = "dirichlet-labels", alpha = 0.5 }}',
        },
    ),
    "hinge": (
        _RATES,
        _alike("random"),
        {
            "federation": f'{_BUFFER}, staleness = {{ name = "hinge", grace = 1, max_age = 4 }}',
            "training": f'{SMALL}, server = {{ name = "fedadam" }}',
        },
    ),
    "novelty": (
        _RATES,
        _alike("refl", "random"),
        {"federation": f'{_BUFFER}, staleness = {{ name = "refl" }}', "training": SMALL},
    ),
    "mixing": (
        _RATES,
        _alike("random"),
        {
            "federation": "concurrency = 4, buffer = 1",
            "training": f'{SMALL}, server = {{ name = "fedasync" }}',
        },
    ),
    "privacy": (
        f'name = "pause-groups", {FLAT_WORLDS["pause-groups"]}',
        {**_alike("pause", "random"), "free": 'name = "random", private = false'},
        {
            "federation": _BUFFER,
            "training": LOGISTIC,
            "privacy": 'epsilon = 20.0, schedule = { name = "uniform", participations = 2 }',
        },
    ),
    "network": (
        _RATES.replace("= 16", "= 8"),
        _alike("random"),
        {"federation": "concurrency = 3, buffer = 2", "training": NETWORKS["own-network"]},
    ),
}
"""By name: a world, policies, and tables of a run without rounds."""
