"""What the checks of runs on a GPU have in common: their options, what a run left, one line a check."""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Failed(Exception):
    pass


def options(description, seconds, run_seconds):
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--meshtrain", type=pathlib.Path, default=ROOT / "build/release/app/meshtrain")
    parser.add_argument("--configs", type=pathlib.Path, default=ROOT / "configs")
    parser.add_argument("--seconds", type=float, default=seconds, help="for everything")
    parser.add_argument("--run-seconds", type=float, default=run_seconds, help="a run that takes longer is given up, "
                        "and leaves the rest its time")
    parser.add_argument("--only", default="", help="checks with this in their names")
    return parser


def losses_of(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [event["loss"] for event in map(json.loads, lines) if event["event"] == "step"]


def weights_of(run):
    return hashlib.sha256((run / "weights.safetensors").read_bytes()).hexdigest()


def report(make_runner, checks, only, beside=1):
    """The exit status. Checks: (name, function of the runner and the rest, the rest), so many at once, those with
    `only` in their names."""
    def run(name, check, rest):
        try:
            return True, f"ok      {name}: {check(runner, *rest)}"
        except Failed as error:
            return False, f"FAILED  {name}: {error}"

    checks = [check for check in checks if only in check[0]]
    if not checks:
        print(f"FAILED  no check has '{only}' in its name")
        return 1
    failures = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(beside) as pool:
        runner = make_runner(pathlib.Path(folder))
        if beside == 1:  # in this thread, where a signal ends what a check has started
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        for passed, line in (map if beside == 1 else pool.map)(run, *zip(*checks)):
            failures += not passed
            print(line, flush=True)
    print(f"{len(checks) - failures} passed, {failures} failed")
    return 1 if failures else 0
