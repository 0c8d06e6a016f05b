#!/usr/bin/env python3
"""Trains the guides' models and the quickstart on the CPU and on a GPU and compares the losses of every step.

  tests/gpu/equality.py --meshtrain PROGRAM [--device gpu:0] [--configs DIR] [--repeats N] [--seconds S] [--only NAME]

The GPU trains on one device, and on eight virtual ones in the config's own mesh; both must follow the CPU's
losses within 1e-4 over 100 steps in full float32, dropout included; the convnet also in float64, and the quickstart
without epilogues of products (MESHTRAIN_EPILOGUES=0). The same run
--repeats times, or as often as there is time for, and once more kernel by kernel (--no-cuda-graph), must leave the
same weights, byte for byte. One line a comparison; exit status 1 when one fails. `--device cpu` tries the program
itself where there is no GPU.
"""
import itertools
import os
import subprocess
import sys
import time

from checks import Failed, losses_of, options, report, weights_of

STEPS = 100
CONVNET = ["fit.epochs=1", "data.train={source: digits, samples: 6400}",
           "data.test={source: digits, split: test, samples: 64}"]
# Name: (config, mesh of one device, what makes 100 short steps of it, tolerance). At the guide's own rate Adam
# makes so much of the convnet's rounding that float32 and float64 on one processor part by 1e-2 in 100 steps:
# that rate is for float64, where a wrong step would show all the more.
MODELS = {
    "keras_guide_data_parallel": ("keras_guide_data_parallel", "1", ["fit.epochs=13"], 1e-4),
    "keras_guide_model_parallel": ("keras_guide_model_parallel", "1x1", ["fit.epochs=13"], 1e-4),
    "convnet": ("jax_guide_convnet", "1", [*CONVNET, "compile.optimizer.Adam.learning_rate=3e-5"], 1e-4),
    "convnet, float64": ("jax_guide_convnet", "1", [*CONVNET, "dtype_policy=float64"], 1e-9),
    "quickstart": ("quickstart", "1x1", ["fit.epochs=1", f"fit.limit_steps={STEPS}"], 1e-4),
}
REPEATED = ["quickstart", "convnet"]
FEWEST_REPEATS = 5  # however little time there is
BESIDE = 4  # checks that run at once: most of a run is starting it


class Runner:
    def __init__(self, arguments, folder):
        self.program, self.configs = str(arguments.meshtrain), arguments.configs
        self.folder, self.end, self.numbers = folder, time.monotonic() + arguments.seconds, itertools.count()
        self.run_seconds = arguments.run_seconds

    def left(self):
        return self.end - time.monotonic()

    def train(self, model, devices, *arguments, **variables):
        """The run's folder."""
        run = self.folder / str(next(self.numbers))
        config, _, steps, _ = MODELS[model]
        command = [self.program, "train", str(self.configs / f"{config}.yaml"), "--devices", devices, "-q", "-o",
                   str(run), "run.log_steps=true", "matmul_precision=highest", "checkpoint.every=never",
                   *steps, *arguments]
        seconds = max(1.0, min(self.run_seconds, self.left()))
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False,
                                  env={**os.environ, **variables})
        except subprocess.TimeoutExpired:
            raise Failed(f"a run on {devices} was not done in {seconds:.0f} s") from None
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}\n  exit status {done.returncode}: {done.stderr.strip()}")
        return run

    def losses(self, *arguments, **variables):
        losses = losses_of(self.train(*arguments, **variables))[:STEPS]
        if len(losses) != STEPS:
            raise Failed(f"{len(losses)} steps instead of {STEPS}")
        return losses


def compare(runner, model, device, **variables):
    """A sentence on how far the losses are apart; Failed when too far."""
    _, one_mesh, _, tolerance = MODELS[model]
    reference = runner.losses(model, "cpu:8")
    said = []
    for devices, arguments in ((one(device), ["--mesh", one_mesh]), (eight(device), [])):
        theirs = runner.losses(model, devices, *arguments, **variables)
        gaps = [abs(a - b) / max(abs(a), 1e-30) for a, b in zip(reference, theirs, strict=True)]
        gap = max(gaps)
        said.append(f"{devices} {gap:.1g}")
        if not gap <= tolerance:  # NaN too
            step = next(i for i, g in enumerate(gaps) if not g <= tolerance)
            raise Failed(f"{devices} is {gap:.2g} from the CPU's losses, first at step {step + 1}: "
                         f"{theirs[step]!r} beside {reference[step]!r}")
    return ", ".join(said)


def without_epilogues(runner, model, device):
    """Every product alone, which tells a wrong epilogue of cuBLASLt from other mistakes."""
    return compare(runner, model, device, MESHTRAIN_EPILOGUES="0")


def one(device):
    return "cpu:1" if device == "cpu" else device


def eight(device):
    return "cpu:8" if device == "cpu" else f"{device}x8"


def repeat(runner, model, device, count):
    def hash_of(*more):
        return weights_of(runner.train(model, one(device), "--mesh", MODELS[model][1], "fit.limit_steps=30", *more))

    hashes, runs, longest = set(), 0, 0.0
    # One more and the one without a graph must fit into what is left.
    while runs < count and (runs < FEWEST_REPEATS or runner.left() > 3 * longest):
        began = time.monotonic()
        hashes.add(hash_of())
        runs, longest = runs + 1, max(longest, time.monotonic() - began)
    if len(hashes) != 1:
        raise Failed(f"{runs} runs left {len(hashes)} different weights")
    if hash_of("--no-cuda-graph") not in hashes:
        raise Failed("--no-cuda-graph leaves other weights")
    return f"{runs} runs and one without a graph, sha256 {hashes.pop()[:16]}"


def main():
    parser = options(__doc__, 600, 30)
    parser.add_argument("--device", default="gpu:0")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    checks = [(f"{m} follows the CPU", compare, (m, arguments.device)) for m in MODELS]
    checks.append(("quickstart without epilogues", without_epilogues, ("quickstart", arguments.device)))
    # Last, since they can do with the time that is left.
    checks += [(f"{m} repeats", repeat, (m, arguments.device, arguments.repeats)) for m in REPEATED]
    return report(lambda folder: Runner(arguments, folder), checks, arguments.only, BESIDE)


if __name__ == "__main__":
    sys.exit(main())
