"""From shares to data as clients own it."""

import numpy as np

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray
from fedmuster.core.streams import NOISE, stream
from fedmuster.learning.records import DataSet, FederatedData, Inputs, Shares

_BLOCK_BYTES = 2**24


def federate(data: DataSet, shares: Shares, *, seed: int) -> FederatedData:
    """Each client's samples in one piece, noisy where its data is, and standardised.

    Noise of ``shares.noise_sd`` is added to the inputs as they are in ``data``, and nothing is
    clipped: a pixel may leave [0, 1]. Then ``data.mean`` is subtracted from all inputs, those of
    the test set too, and ``data.sd`` divides them. ``data`` is left as it is.
    """
    _check(data, shares)
    inputs = data.train_inputs[shares.rows]
    if shares.noise_sd is not None:
        _add_noise(inputs, np.repeat(shares.noise_sd, shares.sizes), seed)
    return FederatedData(
        inputs=_standardise(inputs, data),
        targets=data.train_targets[shares.rows],
        offsets=shares.offsets,
        test_inputs=_standardise(data.test_inputs.copy(), data),
        test_targets=data.test_targets,
        num_classes=data.num_classes,
        quality=shares.quality,
    )


def _add_noise(inputs: Inputs, sd: FloatArray, seed: int) -> None:
    """In place and block by block, so that little memory is needed; the stream runs on from block
    to block, so their size does not matter."""
    rng = stream(seed, NOISE)
    length = max(1, _BLOCK_BYTES // max(inputs[:1].nbytes, 1))
    for start in range(0, len(inputs), length):
        block = inputs[start : start + length]
        noise = rng.standard_normal(block.shape, dtype=np.float32)
        noise *= sd[start : start + length].astype(np.float32).reshape(-1, *[1] * (noise.ndim - 1))
        block += noise


def _standardise(inputs: Inputs, data: DataSet) -> Inputs:
    inputs -= np.float32(data.mean)
    inputs /= np.float32(data.sd)
    return inputs


def _check(data: DataSet, shares: Shares) -> None:
    """Shares may be a user's own."""
    if not (np.isfinite(data.mean) and 0 < data.sd < np.inf):
        raise DataError(f"federate: mean {data.mean}, sd {data.sd}; expected finite, and sd > 0")
    rows, offsets = shares.rows, shares.offsets
    if not (rows.ndim == offsets.ndim == 1 and len(offsets) >= 2):
        raise DataError(
            f"federate: rows has shape {rows.shape} and offsets {offsets.shape}, expected [n] and "
            "[K+1]"
        )
    num_samples = len(data.train_targets)
    if not (np.issubdtype(rows.dtype, np.integer) and ((rows >= 0) & (rows < num_samples)).all()):
        raise DataError(f"federate: rows must be samples 0 … {num_samples - 1}")
    if offsets[0] != 0 or offsets[-1] != len(rows):
        raise DataError(
            f"federate: offsets go from {offsets[0]} to {offsets[-1]}, expected 0 to {len(rows)}"
        )
    if not (shares.sizes > 0).all():
        client = int(np.argmin(shares.sizes))
        raise DataError(f"federate: client {client} has no samples, expected at least one")
    for name, highest in (("quality", 1.0), ("noise_sd", float(np.finfo(np.float32).max))):
        values = getattr(shares, name)
        if values is not None and not (
            values.shape == shares.sizes.shape and ((values >= 0) & (values <= highest)).all()
        ):
            raise DataError(
                f"federate: {name} must hold a number from 0 to {highest:g} for each of "
                f"{len(shares.sizes)} clients"
            )
