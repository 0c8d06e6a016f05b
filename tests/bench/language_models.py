#!/usr/bin/env python3
"""Planning of deep transformers, and how fast texts are generated. About a minute.

    tests/bench/language_models.py [build/release/app/meshtrain]
"""

import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MESHTRAIN = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/app/meshtrain").resolve())
GPT3 = ["vars.depth=96", "vars.width=12288", "vars.heads=96", "vars.context=2048"]
PLANS = {
    "GPT-2, 12 layers, 2 x 4": ["gpt2_124m"],
    "GPT-3's size, 96 layers, 8 x 8 H100": ["gpt2_124m", *GPT3, "--mesh", "8x8", "--devices", "64xH100"],
    "Llama 3 8B, 32 layers, 8 x 8 H100, with `remat`": ["llama3_8b"],
}


def run(*words):
    return subprocess.run([MESHTRAIN, *words], capture_output=True, text=True, check=True)


def plan_seconds(name, *words):
    times = []
    for _ in range(5):
        begin = time.monotonic()
        run("plan", str(ROOT / f"configs/{name}.yaml"), *words)
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def ids_per_second(trained, new):
    rates = []
    for _ in range(5):
        words = ["generate", trained, "--prompt", "The old", "--max-new-tokens", str(new), "--mesh", "1x1"]
        rates.append(float(re.search(r"([\d.]+) ids/s", run(*words).stderr).group(1)))
    return statistics.median(rates)


for text, words in PLANS.items():
    print(f"plan      {text}: {plan_seconds(*words):.3f} s")
with tempfile.TemporaryDirectory() as folder:
    trained = folder + "/run"
    run("train", str(ROOT / "configs/nanogpt_shakespeare.yaml"), "vars.context=256", "fit.limit_steps=2",
        "fit.epochs=1", "evaluate.on=none", "-o", trained, "-q")
    inside, beyond = ids_per_second(trained, 240), ids_per_second(trained, 1000)
print(f"generate  a text within 256 positions, from caches: {inside:.0f} ids/s")
print(f"generate  1,000 ids, most of them by reading 256 anew: {beyond:.0f} ids/s")
