"""What the checks of runs on a GPU have in common: their options, what a run left, one line a check."""
import argparse
import hashlib
import json
import pathlib
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Failed(Exception):
    pass


def options(description, seconds):
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--meshtrain", type=pathlib.Path, default=ROOT / "build/release/app/meshtrain")
    parser.add_argument("--configs", type=pathlib.Path, default=ROOT / "configs")
    parser.add_argument("--seconds", type=float, default=seconds, help="for everything")
    return parser


def losses_of(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [event["loss"] for event in map(json.loads, lines) if event["event"] == "step"]


def weights_of(run):
    return hashlib.sha256((run / "weights.safetensors").read_bytes()).hexdigest()


def report(make_runner, checks):
    """The exit status. Checks: (name, function of the runner and the rest, the rest)."""
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        runner = make_runner(pathlib.Path(folder))
        for name, check, rest in checks:
            try:
                print(f"ok      {name}: {check(runner, *rest)}", flush=True)
            except Failed as error:
                failures += 1
                print(f"FAILED  {name}: {error}", flush=True)
    print(f"{len(checks) - failures} passed, {failures} failed")
    return 1 if failures else 0
