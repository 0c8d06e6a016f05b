#!/usr/bin/env python3
"""What gpu_bench.py makes of its time and of its figures, with sides and a clock that are played."""
import argparse
import contextlib
import io
import json
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

    def __init__(self, budget, rounds=10, broken=(), error=gpu_bench.Missing("does not answer")):
        self.now, self.broken, self.error = 0.0, broken, error
        with mock.patch("time.monotonic", lambda: self.now), tempfile.TemporaryDirectory() as folder:
            super().__init__(argparse.Namespace(dry_run=False, budget=budget, rounds=rounds, seconds=0.15,
                                                meshtrain="meshtrain"), pathlib.Path(folder))
            self.modes = {key: [] for key in SIDES}
            self.time_steps()

    def measure(self, name, side, steps):
        if (name, side) in self.broken:
            raise self.error
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
        for error in gpu_bench.Missing("does not answer"), ValueError("does not answer"):
            bench = Played(budget=100, broken={("c64", "meshtrain")}, error=error)
            self.assertEqual(bench.rounds(), [10, 10, 0, 10])
            self.assertEqual(bench.missing, [["c64 meshtrain", "does not answer"]])

    def test_what_a_library_prints_is_no_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "peer.py"
            script.write_text("import sys\n"
                              "for line in sys.stdin:\n"
                              "    print('loading', '[W1] a warning', '{half', sep='\\n')\n"
                              "    print('[\"%s\"]' % line.strip(), flush=True)\n")
            peer = gpu_sides.Peer(sys.executable, script, "b64", "cpu", tiny=True)
            self.assertEqual(peer.ask("first", 60), ["first"])
            self.assertEqual(peer.ask("second", 60), ["second"])
            peer.close()

    def test_each_mode_of_pytorch_with_a_goal_has_a_process_and_none_waits_behind_one_without(self):
        judged = {side for sides, _ in gpu_bench.RATIO_GOALS for side in sides}
        for peer, groups in gpu_bench.GROUPS.items():
            for group in groups:
                has_goal = [f"{peer} {mode}" in judged for mode in group]
                self.assertEqual(has_goal, sorted(has_goal, reverse=True))
                self.assertTrue(peer == "jax" or sum(has_goal) <= 1)

    def test_modes_are_prepared_in_our_order_and_what_is_wrong_with_one_leaves_the_others(self):
        bench = Played(budget=100)
        answers = {"modes": ["jit", "keras", "scan"], "check": {"losses": [1.0]}, "prepare keras": {"loss": 1},
                   "prepare scan": {"losses": [2.0]}, "prepare jit": {"losses": [3.0]}}
        bench.arguments.jax_python = sys.executable
        with mock.patch("gpu_bench.Peer") as peer:
            peer.return_value.ask = mock.Mock(side_effect=lambda command, _: answers[command])
            found = bench.prepare_peer("b64", "jax", gpu_bench.GROUPS["jax"][0], gpu_bench.Clock(60))
        self.assertEqual([call.args[0] for call in peer.return_value.ask.call_args_list],
                         ["modes", "check", "prepare keras", "prepare scan", "prepare jit"])
        self.assertEqual(found, {"check": [1.0], "scan": [2.0], "jit": [3.0]})
        self.assertEqual([what for what, _ in bench.missing], ["b64 JAX as Keras calls it"])

    def test_a_process_that_has_none_of_its_modes_here_is_ended(self):
        bench = Played(budget=100)
        bench.arguments.torch_python = sys.executable
        with mock.patch("gpu_bench.Peer") as peer:
            peer.return_value.ask = mock.Mock(return_value=["eager"])
            self.assertEqual(bench.prepare_peer("wide", "torch", ("compile_ro",), gpu_bench.Clock(60)), {})
            self.assertTrue(peer.return_value.close.called)

    def test_losses_that_are_no_numbers_are_not_timed(self):
        bench = Played(budget=100)
        bench.modes = {}
        bench.compare_losses("b64", "torch", [1.0, 1.0], {"check": [1.0, float("nan")], "eager": [1.0]})
        bench.compare_losses("b64", "torch", [1.0, 1.0], {"eager": [1.0], "compile": [float("nan")]})
        self.assertEqual(list(bench.modes), [("b64", "torch eager")])
        self.assertEqual([what for what, _ in bench.missing], ["b64 torch", "b64 PyTorch compile"])

    def test_what_breaks_on_the_way_leaves_the_figures_that_there_are(self):
        def prepare(bench, names):
            bench.modes = {(name, "meshtrain"): [30.0] for name in names}
            raise RuntimeError("no more")

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(gpu_bench.Bench, "prepare", prepare), \
                mock.patch.object(gpu_bench.Bench, "first_steps", return_value={"meshtrain": 0.9}), \
                mock.patch.object(sys, "argv", ["gpu_bench.py", "--only", "64,first", "--save", f"{folder}/bench"]), \
                contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(gpu_bench.main(), 1)
            record = json.loads((pathlib.Path(folder) / "bench.json").read_text())
            self.assertIn("Missing: the rest: RuntimeError: no more", (pathlib.Path(folder) / "bench.md").read_text())
        self.assertEqual(record["medians"], {name: {"meshtrain": 30.0} for name in ("a64", "b64", "c64")})
        self.assertEqual(record["first_step_s"], {"meshtrain": 0.9})

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
