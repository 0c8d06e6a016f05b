#!/usr/bin/env python3
"""multi_gpu.py with a played meshtrain: what it makes of times, and that a run that fails leaves the rest."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# Two GPUs; a step takes 10 ms for 512 samples on each, 1 ms more on two of them, the first epoch longer.
PLAYED = """#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
if words[0] == "devices":
    print(json.dumps({"gpus": [{}, {}]}))
elif words[0] == "bench":
    point = {"bytes": 1024, "seconds": 1e-3, "bus_rate": 2e9}
    print(json.dumps({"hardware": "name: played", "series": [
        {"kind": "all_reduce", "axis": "data", "reductions": "fast", "points": [point]}]}))
elif words[0] == "plan":
    print(json.dumps({"estimate": {"communication_seconds": 4e-3}}))
elif value("--devices") == FAILING:
    sys.exit("error[E630]: out of memory")
else:
    count = 1 if value("--devices") == "gpu:0" else 2
    seconds = 10e-3 * int(value("--batch-size")) / count / 512 + 1e-3 * (count - 1)
    os.makedirs(value("-o"))
    with open(os.path.join(value("-o"), "metrics.jsonl"), "w") as file:
        for epoch in range(int(value("--epochs"))):
            file.write(json.dumps({"event": "epoch", "ms_per_step": seconds * 1e3 * (1 if epoch else 5)}) + "\\n")
"""


class MultiGpu(unittest.TestCase):
    def run_script(self, failing=None):
        """(exit status, lines of the table, figures)."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            program = folder / "meshtrain"
            program.write_text(PLAYED.replace("FAILING", repr(failing)))
            program.chmod(0o755)
            done = subprocess.run([sys.executable, HERE / "multi_gpu.py", "--meshtrain", program, "--only", "convnet",
                                   "--save", folder / "figures.json"], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout.splitlines(), json.loads((folder / "figures.json").read_text())

    def test_efficiency_and_overlap_follow_from_the_times(self):
        code, lines, figures = self.run_script()
        self.assertEqual(code, 0, lines)
        self.assertEqual([line.split() for line in lines[2:]], [
            ["all_reduce", "fast", "2", "1", "KiB", "1.000", "ms", "-", "-", "-", "2.0", "GB/s"],
            ["convnet,", "weak", "1", "512", "10.00", "ms", "51,200/s", "100%", "-", "-"],
            ["convnet,", "weak", "2", "1024", "11.00", "ms", "93,091/s", "91%", "75%", "-"],
            ["convnet,", "strong", "1", "2048", "40.00", "ms", "51,200/s", "100%", "-", "-"],
            ["convnet,", "strong", "2", "2048", "21.00", "ms", "97,524/s", "95%", "-", "-"]])
        self.assertEqual(len(figures["scaling"]), 4)

    def test_a_run_that_fails_is_named_and_leaves_the_others(self):
        code, lines, figures = self.run_script(failing="gpu:0-1")
        self.assertEqual(code, 1)
        self.assertEqual(sum("FAILED: `train` ended with exit code 1: error[E630]" in line for line in lines), 2)
        self.assertEqual([row["gpus"] for row in figures["scaling"] if "seconds" in row], [1, 1])

    def test_without_the_time_of_one_gpu_there_is_no_efficiency(self):
        code, lines, figures = self.run_script(failing="gpu:0")
        self.assertEqual(code, 1)
        self.assertEqual([row["efficiency"] for row in figures["scaling"] if "seconds" in row], [None, None])
        self.assertEqual(len(lines), 7)


if __name__ == "__main__":
    unittest.main()
