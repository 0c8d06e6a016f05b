#!/usr/bin/env python3
"""Checks the cost model of `meshtrain plan` against published series, and prints its predictions.

  tests/bench/scaling_model.py --meshtrain build/release/app/meshtrain           # both; exits 1 if one is off
  tests/bench/scaling_model.py --meshtrain ... --only series|table|llama

A published series is one model on growing numbers of GPUs. Its first point sets the rate of products
(and for the slow network its second point sets that of the network), which stand for kernels, clocks and
libraries that are not ours: these are "fitted here". The model's jitter was chosen with the last points of
three series, which say "fitted jitter": that they agree shows that the model has not changed, not that it is
right. Only what says "independent" was predicted. Everything goes through the program: a config in YAML,
`meshtrain plan --devices NxH100 --hardware FILE --format json`. Reductions are NCCL's own, as those of the
frameworks that were measured.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DECODER = os.path.join(ROOT, "tests/bench/configs/transformer_8b.yaml")
FITTED = 1e-3  # how near a point comes that sets a rate
SHARDS = 128  # devices that hold one copy of the weights in the series


LLAMA3_8B = dict(width=4096, hidden=14336, layers=32, vocabulary=128256, tokens=8192, key_heads=8)
LLAMA3_70B = dict(width=8192, hidden=28672, layers=80, vocabulary=128256, tokens=8192, key_heads=8)
LLAMA2_7B = dict(width=4096, hidden=11008, layers=32, vocabulary=32000, tokens=4096, key_heads=32)

# Published on H100: seconds a step or speed of a GPU, by number of GPUs. Sources:
# NVIDIA/dgxc-benchmarking maxtext/README_70b.md; pytorch/torchtitan
# benchmarks/llama3_h100_202412_torchtitan.md; AI-Hypercomputer/maxtext
# configs/a3/llama_2_7b/README.md. `each`: sequences a GPU; two is what MFU and seconds give for 70B,
# the others do not say. `jitter`: lib/plan/hardware.cc was fitted to it.
SERIES = [
    dict(name="MaxText Llama 3 70B, bf16, H100: seconds a step", model=LLAMA3_70B, each=2,
         unit="seconds", points={128: 15.56, 2048: 15.90}, jitter=True, tolerance=0.01),
    dict(name="torchtitan Llama 3.1 8B, bf16 compiled, H100: tokens/s a GPU", model=LLAMA3_8B,
         each=2, unit="tokens", points={8: 6667, 128: 6514}, jitter=True, tolerance=0.015),
    dict(name="torchtitan Llama 3.1 8B, bf16 eager, H100: tokens/s a GPU", model=LLAMA3_8B,
         each=2, unit="tokens", points={8: 5762, 128: 5605}, jitter=True, tolerance=0.015),
    dict(name="MaxText Llama 2 7B, H100 on a slower network: relative speed of a GPU", model=LLAMA2_7B,
         each=4, unit="relative", points={8: 492, 16: 422, 64: 409, 128: 375},
         fit_network=True, tolerance=0.10),
]


class Planner:
    def __init__(self, meshtrain, folder):
        self.meshtrain, self.folder = meshtrain, folder

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def plan(self, config, devices, mesh, batch, hardware=None, more=()):
        command = [self.meshtrain, "plan", config, "--devices", devices, "--mesh", mesh, "--format", "json",
                   f"fit.batch_size={batch}", *more]
        if hardware:
            command += ["--hardware", self.write("hardware.yaml", hardware)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        answer = json.loads(done.stdout)
        return answer["estimate"] | {"bytes": answer["memory"]["total"]}


def solve(function, wanted, low, high):
    """x in [low, high] where the falling function reaches `wanted`, to a part in 100,000: false position
    (Illinois) over 1/x, in which a step's time is nearly straight."""
    a, b = 1 / high, 1 / low
    gap_a, gap_b = function(high) - wanted, function(low) - wanted
    for _ in range(40):
        u = (a * gap_b - b * gap_a) / (gap_b - gap_a)
        gap = function(1 / u) - wanted
        if abs(gap) < 1e-5 * wanted:
            return 1 / u
        a, gap_a = (b, gap_b) if gap * gap_b < 0 else (a, gap_a / 2)
        b, gap_b = u, gap
    sys.exit(f"no rate from {low:g} to {high:g} gives {wanted:g}")


def series_rows(planner, series):
    words = [f"vars.{name}={size}" for name, size in series["model"].items()] + ["distribution.reductions=fast"]

    def step(gpus, rate, network):
        shards = min(SHARDS, gpus)
        hardware = f"H100: {{matmul: {{bfloat16: {rate}}}, network: {{rate: {network}}}}}\n"
        return planner.plan(DECODER, f"{gpus}xH100", f"{gpus // shards}x{shards}",
                            gpus * series["each"], hardware, words)["step_seconds"]

    counts = list(series["points"])
    tokens = series["each"] * series["model"]["tokens"]
    published = dict(series["points"])
    relative = series["unit"] == "relative"

    def seconds_of(count):  # published value as seconds a step
        value = published[count]
        return value if series["unit"] == "seconds" else tokens / value

    network = 47e9
    if relative:  # no absolute time is known: the table's own rate of products
        rate = 790e12
        first = step(counts[0], rate, network)
        target = lambda count: first * published[counts[0]] / published[count]
    else:
        rate = solve(lambda r: step(counts[0], r, network), seconds_of(counts[0]), 1e14, 1e16)
        target = seconds_of
    fitted = 1
    if series.get("fit_network"):
        network = solve(lambda n: step(counts[1], rate, n), target(counts[1]), 1e8, 1e11)
        fitted = 2
    rows = []
    for i, count in enumerate(counts):
        predicted = step(count, rate, network)
        if series["unit"] == "seconds":
            shown = predicted
        elif relative:
            shown = published[counts[0]] * first / predicted
        else:
            shown = tokens / predicted
        how = "fitted here" if i < fitted else "fitted jitter" if series.get("jitter") else "independent"
        rows.append((count, published[count], shown, how))
    return rows, rate, network


def check_series(planner):
    failed = 0
    for series in SERIES:
        rows, rate, network = series_rows(planner, series)
        print(f"\n{series['name']} (products {rate / 1e12:.0f} TFLOP/s, network {network / 1e9:.1f} GB/s a GPU)")
        for count, published, model, how in rows:
            off = model / published - 1
            bad = abs(off) > (FITTED if how == "fitted here" else series["tolerance"])
            failed += bad
            print(f"  {count:5} GPUs  published {published:8.4g}  model {model:8.4g}  {off:+.1%}  {how}"
                  f"{'  OUT OF ' + format(series['tolerance'], '.1%') if bad else ''}")
    return failed


def table(planner):
    configs = os.path.join(ROOT, "configs")
    mirrored = os.path.join(configs, "mirrored_mlp.yaml")
    convnet = os.path.join(configs, "jax_guide_convnet.yaml")
    fast = "distribution.reductions=fast"
    cases = [
        ("8B decoder, 2 x 8192 tokens a GPU, FSDP over all", DECODER, 2, lambda n: f"1x{n}", ()),
        ("the same, reductions: fast", DECODER, 2, lambda n: f"1x{n}", (fast,)),
        ("the same, HSDP: split over at most 64, copies beyond", DECODER, 2,
         lambda n: f"{max(1, n // 64)}x{min(n, 64)}", ()),
        ("the same, HSDP, reductions: fast", DECODER, 2,
         lambda n: f"{max(1, n // 64)}x{min(n, 64)}", (fast,)),
        ("MLP b, batch 64 a GPU", mirrored, 64, str, ()),
        ("the same, reductions: fast", mirrored, 64, str, (fast,)),
        ("MLP b, batch 64 in all", mirrored, 0, str, ()),
        ("the same, reductions: fast", mirrored, 0, str, (fast,)),
        ("convnet, batch 64 a GPU", convnet, 64, str, ()),
        ("the same, reductions: fast", convnet, 64, str, (fast,)),
    ]
    print("\n| case, H200 | GPUs | step | of it exposed | MFU | samples/s | speed of a GPU beside the first | bound |")
    print("|---|---|---|---|---|---|---|---|")
    for name, config, each, mesh, words in cases:
        first = None
        for n in ([1, 2, 4, 8] if each == 0 else [8, 64, 512, 4096]):
            e = planner.plan(config, f"{n}xH200", mesh(n), each * n or 64, more=words)
            speed = e["samples_per_second"] / n
            first = first or speed
            print(f"| {name} | {n} | {e['step_seconds'] * 1e3:.4g} ms | {e['exposed_seconds'] * 1e3:.3g} ms | "
                  f"{e['mfu']:.1%} | {e['samples_per_second']:,.0f} | {speed / first:.1%} | {e['bound']} |")


def llama(planner):
    """Llama 3 as configs have it, one sequence of 8,192 tokens a GPU in all, blocks recomputed."""
    config = os.path.join(ROOT, "configs/llama3_8b.yaml")
    sizes = {"8B": (), "70B": ("vars.width=8192", "vars.heads=64", "vars.hidden=28672", "vars.depth=80")}
    hybrid = ("~distribution.layout_map", "distribution.device_mesh.axis_names=[data, fsdp]",
              "distribution.batch_dim_name=[data, fsdp]", "distribution.zero_axes=[fsdp]")
    layouts = [
        ("FSDP", lambda n: f"{n}x1", ("~distribution.layout_map",)),
        ("HSDP, copies of 64", lambda n: f"{n // 64}x64", hybrid),
        ("megatron 8, FSDP", lambda n: f"{n // 8}x8", ("distribution.layout_map=megatron",)),
        ("context 8, FSDP", lambda n: f"{n // 8}x8", ("distribution.layout_map=context",)),
    ]
    print("\n| Llama 3, H100 | layouts | GPUs | memory | step | of it exposed | MFU | tokens/s a GPU | bound |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size, words in sizes.items():
        for name, mesh, more in layouts:
            for n in 64, 512, 4096:
                e = planner.plan(config, f"{n}xH100", mesh(n), n, more=(*words, *more, "distribution.reductions=fast"))
                memory = f"{e['bytes'] / 1e9:.1f} GB" + ("" if e["fits"] else ", too much")
                print(f"| {size} | {name} | {n} | {memory} | {e['step_seconds']:.3g} s | {e['exposed_seconds']:.2g} s | "
                      f"{e['mfu']:.1%} | {8192 / e['step_seconds']:,.0f} | {e['bound']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshtrain", required=True)
    parser.add_argument("--only", choices=["series", "table", "llama"])
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(args.meshtrain, folder)
        if args.only in (None, "series"):
            failed = check_series(planner)
        if args.only in (None, "table"):
            table(planner)
        if args.only in (None, "llama"):
            llama(planner)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
