"""A client of FLARE that takes a step towards its own target, and may misbehave."""

import argparse
import os
import signal
import time
from typing import Any

import numpy as np
import nvflare.client as flare


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", default="")  # site-1=hang,site-2=nan
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--scaffold", action="store_true")
    options = parser.parse_args()
    faults = dict(pair.split("=") for pair in options.faults.split(",") if pair)
    flare.init()
    fault = faults.get(flare.get_site_name(), "")
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        time.sleep(options.seconds)
        if fault == "hang":
            time.sleep(600)
        if fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raise":
            raise RuntimeError("this client always fails")
        weights = {name: value + 0.5 * (1.0 - value) for name, value in received.params.items()}
        loss = float(np.mean([np.mean((1.0 - value) ** 2) for value in received.params.values()]))
        if fault == "nan":
            weights = {name: value * np.nan for name, value in weights.items()}
        if fault == "shape":
            weights = {name: np.ones(3) for name in weights}
        meta: dict[str, Any] = {"NUM_STEPS_CURRENT_ROUND": 10}
        if options.scaffold:  # the model moves by the global control terms, which grow by 1
            terms = received.meta["scaffold_c_global"]
            weights = {name: value + terms[name] for name, value in received.params.items()}
            loss = float(np.mean([np.mean(value**2) for value in received.params.values()]))
            meta["scaffold_c_diff"] = {name: np.ones_like(value) for name, value in terms.items()}
            if fault == "nan":
                meta["scaffold_c_diff"] = {name: v * np.nan for name, v in terms.items()}
        flare.send(flare.FLModel(params=weights, metrics={"val_loss": loss}, meta=meta))


if __name__ == "__main__":
    main()
