"""Data sets that need no files: digits that come with this package, synthetic data, your own."""

import io
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import ClassVar

import numpy as np

from fedmuster.core.config import check_types, require
from fedmuster.core.streams import DATA, stream
from fedmuster.training.data.assembly import DATASETS, Data, Limits, RawData, assemble
from fedmuster.training.models import OwnFactory
from fedmuster.training.training_records import DataSet

_TEST_EVERY = 5
_DARKEST = 16.0


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Digits(Limits):
    """Handwritten digits, 8 × 8: 1,437 to train on, 360 to test. Needs no download.

    Every fifth image of the list that is sorted by label is for testing, whatever the seed, so
    both parts have the same share of each digit.

    Args:
        train_limit: the largest number of training samples, drawn by the seed; None for all.
        test_limit: the same for test samples.

    References:
        E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
        Repository, 1998, https://doi.org/10.24432/C50P49 (the test part, as in scikit-learn).

    Example:
        >>> data = Digits().load(seed=0)
        >>> data.train_inputs.shape, data.test_inputs.shape, float(data.train_inputs.max())
        ((1437, 1, 8, 8), (360, 1, 8, 8), 1.0)
    """

    name: ClassVar[str] = "digits"

    def load(self, seed: int) -> DataSet:
        """Unpack the images."""
        return assemble(_digits(), num_classes=10, limits=self, seed=seed)


@cache
def _digits() -> RawData:
    image = resources.files(__package__).joinpath("digits.npz").read_bytes()
    with np.load(io.BytesIO(image), allow_pickle=False) as archive:
        images, labels = archive["images"][:, np.newaxis], archive["labels"]
    test = np.zeros(len(labels), dtype=np.bool_)
    test[np.argsort(labels, kind="stable")[::_TEST_EVERY]] = True
    return RawData(
        train_inputs=images[~test],
        train_targets=labels[~test],
        test_inputs=images[test],
        test_targets=labels[test],
        full_scale=_DARKEST,
    )


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class LinearRegression(Data):
    """Linear regression: ``y = w·x + b + noise``, with w, b and x standard normal.

    The mean squared error of the best model is ``noise_sd²``.

    Args:
        num_features: of x.
        noise_sd: standard deviation of the noise.
        num_train: training samples.
        num_test: test samples.

    Deviations:
        1. BSFL calls its data (§VI) "synthetic data for linear regression" and says no more: law,
           dimension, noise and sizes are ours.

    References:
        D. Ben Ami, K. Cohen and Q. Zhao, "Client Selection for Generalization in Accelerated
        Federated Learning: A Multi-Armed Bandit Approach", IEEE Access, 2025.
    """

    name: ClassVar[str] = "linear-regression"

    num_features: int = 10
    noise_sd: float = 0.1
    num_train: int = 2000
    num_test: int = 1000

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("num_features", "num_train", "num_test"):
            require(getattr(self, name) >= 1, self, name, "an integer >= 1")
        require(0 <= self.noise_sd < math.inf, self, "noise_sd", "a number >= 0")

    def load(self, seed: int) -> DataSet:
        """Draw the samples."""
        rng = stream(seed, DATA)
        weights, bias = rng.standard_normal(self.num_features), rng.standard_normal()
        x = rng.standard_normal((self.num_train + self.num_test, self.num_features))
        y = x @ weights + bias + self.noise_sd * rng.standard_normal(len(x))
        inputs, targets = x.astype(np.float32), y.astype(np.float32)
        return DataSet(
            train_inputs=inputs[: self.num_train],
            train_targets=targets[: self.num_train],
            test_inputs=inputs[self.num_train :],
            test_targets=targets[self.num_train :],
            num_classes=0,
        )


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticLogistic(Data):
    """Synthetic(alpha, beta): every owner k has a logistic model and inputs of its own.

    ``y = argmax(W_k x + b_k)``; entries of W_k and b_k are N(u_k, 1) with u_k ~ N(0, alpha);
    x ~ N(v_k, diag(j^-1.2)), entries of v_k are N(B_k, 1) with B_k ~ N(0, beta); owner k has
    50 + lognormal(4, 2) samples, of which a tenth are for testing. (0, 0) is not i.i.d.: W_k and
    v_k still differ.

    Args:
        alpha: standard deviation of u_k: how much the models differ.
        beta: standard deviation of B_k: how much the inputs differ.
        iid: one model for all owners, and v_k = 0.
        num_owners: how many owners there are.
        num_features: of x.
        num_classes: how many labels there are.

    References:
        T. Li et al., "Federated Optimization in Heterogeneous Networks", MLSys, 2020, §5.1 and
        the authors' code (which says that alpha and beta are standard deviations).
    """

    name: ClassVar[str] = "synthetic-logistic"

    alpha: float = 1.0
    beta: float = 1.0
    iid: bool = False
    num_owners: int = 30
    num_features: int = 60
    num_classes: int = 10

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("alpha", "beta"):
            require(0 <= getattr(self, name) < math.inf, self, name, "a number >= 0")
        for name in ("num_owners", "num_features"):
            require(getattr(self, name) >= 1, self, name, "an integer >= 1")
        require(self.num_classes >= 2, self, "num_classes", "an integer >= 2")

    def load(self, seed: int) -> DataSet:
        """Draw the samples."""
        rng = stream(seed, DATA)
        sizes = 50 + rng.lognormal(4.0, 2.0, self.num_owners).astype(np.int64)
        owners = np.repeat(np.arange(self.num_owners), sizes)
        models = 1 if self.iid else self.num_owners
        u = np.zeros(models) if self.iid else rng.normal(0.0, self.alpha, models)
        weights = rng.normal(u[:, None, None], 1.0, (models, self.num_features, self.num_classes))
        bias = rng.normal(u[:, None], 1.0, (models, self.num_classes))
        centre = np.zeros((self.num_owners, self.num_features))
        if not self.iid:
            spread = rng.normal(0.0, self.beta, self.num_owners)
            centre = rng.normal(spread[:, None], 1.0, centre.shape)
        sd = np.arange(1.0, self.num_features + 1) ** (-1.2 / 2)
        x = centre[owners] + sd * rng.standard_normal((len(owners), self.num_features))
        labels = np.empty(len(owners), dtype=np.int64)
        for owner, rows in enumerate(np.split(np.arange(len(owners)), np.cumsum(sizes)[:-1])):
            model = owner % models
            labels[rows] = np.argmax(x[rows] @ weights[model] + bias[model], axis=1)
        rank = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        train = rank < (0.9 * sizes).astype(np.int64)[owners]
        inputs = x.astype(np.float32)
        return DataSet(
            train_inputs=inputs[train],
            train_targets=labels[train],
            test_inputs=inputs[~train],
            test_targets=labels[~train],
            num_classes=self.num_classes,
            train_owners=owners[train],
        )


@DATASETS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class OwnData(OwnFactory, Data):
    """Your own data set, made by your function of the seed.

    Args:
        factory: ``module:function``, for example ``my_package.my_module:load``; the module is
            looked for where Python looks, and then in the working directory.

    Example:
        >>> OwnData(factory="fedmuster.training.data:Digits").factory
        'fedmuster.training.data:Digits'
    """

    name: ClassVar[str] = "own"

    factory: str

    def load(self, seed: int) -> DataSet:
        """Import the function and call it."""
        data = self.function()(seed)
        complaint = f"returned {type(data).__name__}, expected a DataSet"
        self.require_kind(isinstance(data, DataSet), complaint)
        loaded: DataSet = data
        return loaded
