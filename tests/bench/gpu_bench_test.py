#!/usr/bin/env python3
"""What gpu_bench.py makes of its time and of its figures, with sides and a clock that are played."""
import argparse
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.modules.setdefault("numpy", types.ModuleType("numpy"))  # of the data, which nobody makes here
import gpu_bench  # noqa: E402
import gpu_sides  # noqa: E402

SIDES = {("b64", "meshtrain"): 2.0, ("b64", "torch eager"): 0.5, ("c64", "meshtrain"): 3.0, ("c64", "torch eager"): 0.5}


class Played(gpu_bench.Bench):
    """Turns take the seconds of SIDES; `broken` sides answer nothing."""

    def __init__(self, budget, rounds=10, broken=()):
        self.now, self.broken = 0.0, broken
        with mock.patch("time.monotonic", lambda: self.now), tempfile.TemporaryDirectory() as folder:
            super().__init__(argparse.Namespace(dry_run=False, budget=budget, rounds=rounds, seconds=0.15,
                                                meshtrain="meshtrain"), pathlib.Path(folder))
            self.modes = {key: [] for key in SIDES}
            self.time_steps()

    def measure(self, name, side, steps):
        if (name, side) in self.broken:
            raise gpu_bench.Missing("does not answer")
        self.now += SIDES[name, side]
        return 40.0

    def note(self, what, error):
        self.missing.append([what, str(error)])

    def rounds(self):
        return [len(times) for times in self.modes.values()]


class GpuBench(unittest.TestCase):
    def test_all_rounds_are_had_where_there_is_time(self):
        bench = Played(budget=100)
        self.assertEqual(bench.rounds(), [10] * 4)
        self.assertEqual(bench.missing, [])

    def test_too_little_time_for_all_rounds_is_no_fault_and_takes_them_from_all_sides_alike(self):
        bench = Played(budget=1 + 6 * 5 + gpu_bench.RESERVE)  # one of which is for how many steps a turn has
        self.assertEqual(len(set(bench.rounds())), 1)
        self.assertGreaterEqual(bench.rounds()[0], gpu_bench.FEWEST_ROUNDS)
        self.assertLess(bench.rounds()[0], 10)
        self.assertEqual(bench.missing, [])
        self.assertLessEqual(bench.now, 1 + 6 * 5)

    def test_sides_with_fewer_than_four_rounds_are_named(self):
        bench = Played(budget=0.9 + 2 * 6 + gpu_bench.RESERVE)
        self.assertEqual(bench.rounds(), [2] * 4)
        self.assertEqual([what for what, _ in bench.missing], [" ".join(key) for key in SIDES])
        self.assertEqual(bench.missing[0][1], "2 rounds in the 18 s of --budget")

    def test_a_side_that_does_not_answer_is_named_once_and_leaves_the_others(self):
        bench = Played(budget=100, broken={("c64", "meshtrain")})
        self.assertEqual(bench.rounds(), [10, 10, 0, 10])
        self.assertEqual(bench.missing, [["c64 meshtrain", "does not answer"]])

    def test_a_first_step_that_nobody_made_is_missing_and_the_rest_is_there(self):
        says = "print('error: nothing fits')"
        with self.assertRaisesRegex(gpu_sides.Missing, "exit status 0: error: nothing fits"):
            gpu_sides.seconds_to_line([sys.executable, "-c", says], '"loss"', 60)
        with self.assertRaisesRegex(gpu_sides.Missing, "not done in 1 s"):
            gpu_sides.seconds_to_line([sys.executable, "-c", "import time; time.sleep(60)"], '"loss"', 1)
        bench = Played(budget=100)
        bench.meshtrain = mock.Mock(first_step=mock.Mock(return_value=1.5))
        bench.arguments.torch_python = bench.arguments.jax_python = sys.executable
        with mock.patch.object(bench, "has", return_value=True), \
                mock.patch("gpu_bench.seconds_to_line", side_effect=gpu_bench.Missing("no line")):
            self.assertEqual(bench.first_steps(), {"meshtrain, cold": 1.5, "meshtrain": 1.5})
        self.assertEqual(len(bench.missing), 4)

    def test_the_first_step_is_judged_cold_and_with_cached_kernels(self):
        record = {"medians": {}, "matmul_tflops": None, "first_step_s": {"meshtrain": 0.9, "meshtrain, cold": 2.5}}
        goals = {what: reached for what, _, _, reached in gpu_bench.goals_of(record, {})}
        self.assertEqual(goals, {"first step with cached kernels, s after process start": 2,
                                 "first step cold, s after process start": 0})


if __name__ == "__main__":
    unittest.main()
