#!/usr/bin/env python3
"""TensorBoard itself reads what the callback writes. Exit status 77 where there is no TensorBoard.

  tensorboard_test.py MESHTRAIN     with a Python that has the package tensorboard
"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

try:
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.backend.event_processing import plugin_event_multiplexer
    from tensorboard.compat.proto import graph_pb2
    from tensorboard.plugins.graph import keras_util
except ImportError as error:
    print(f"skipped: {error}; scripts/python_peers.sh installs it, then configure again")
    sys.exit(77)

MESHTRAIN = None

CONFIG = """name: board
seed: 7
distribution: {type: DataParallel, device_mesh: {shape: [2]}}
data:
  train: {source: random, samples: 64, shape: [6], classes: 3, seed: 1}
  validation: {source: random, samples: 16, shape: [6], classes: 3, seed: 2}
model:
  layers:
    - Input: {shape: [6], name: x}
    - Dense: {name: d1, units: 8, activation: relu}
    - Dropout: {name: drop, rate: 0.3}
    - Dense: {name: d2, units: 3}
compile:
  optimizer: {SGD: {learning_rate: 0.125}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 16, epochs: 4}
callbacks:
  - TensorBoard: {update_freq: 2, histogram_freq: 2, write_steps_per_second: true}
"""


def read(folder):
    accumulator = event_accumulator.EventAccumulator(
        str(folder), size_guidance={event_accumulator.SCALARS: 0, event_accumulator.HISTOGRAMS: 0,
                                    event_accumulator.TENSORS: 0})
    accumulator.Reload()
    return accumulator


def scalars(accumulator, tag):
    return [(e.step, e.value) for e in accumulator.Scalars(tag)]


def epoch_logs(run, name):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [e["logs"][name] for e in lines if e["event"] == "epoch"]


class Board(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "c.yaml").write_text(CONFIG)

    def tearDown(self):
        self.temporary.cleanup()

    def train(self, *args, command=("train", "c.yaml"), code=0):
        result = subprocess.run([MESHTRAIN, *command, "-q", *args], cwd=self.folder,
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def check_values(self, board, run, name, tag):
        for (step, value), (epoch, log) in zip(scalars(board, tag),
                                               enumerate(epoch_logs(run, name)), strict=True):
            self.assertEqual(step, epoch)
            self.assertAlmostEqual(value, log, places=6)

    def test_scalars_histograms_and_the_graph_are_there(self):
        self.train("-o", "run")
        run = self.folder / "run"
        train, validation = read(run / "logs/train"), read(run / "logs/validation")
        self.assertEqual(set(train.Tags()["scalars"]),
                         {"epoch_loss", "epoch_accuracy", "epoch_learning_rate",
                          "epoch_steps_per_second", "batch_loss", "batch_accuracy",
                          "batch_steps_per_second"})
        self.assertEqual(set(validation.Tags()["scalars"]),
                         {"epoch_loss", "epoch_accuracy", "evaluation_loss_vs_iterations",
                          "evaluation_accuracy_vs_iterations"})
        self.check_values(train, run, "loss", "epoch_loss")
        self.check_values(train, run, "accuracy", "epoch_accuracy")
        self.check_values(validation, run, "val_loss", "epoch_loss")
        self.assertEqual(scalars(train, "epoch_learning_rate"), [(e, 0.125) for e in range(4)])
        self.assertEqual([s for s, _ in scalars(train, "batch_loss")], list(range(2, 17, 2)))
        self.assertEqual([s for s, _ in scalars(validation, "evaluation_loss_vs_iterations")],
                         [4, 8, 12, 16])
        histograms = train.Histograms("d1/kernel/histogram")
        self.assertEqual([h.step for h in histograms], [0, 2])
        self.assertEqual(histograms[0].histogram_value.num, 48)
        self.assertEqual(sum(histograms[0].histogram_value.bucket), 48)
        nodes = {n.name: n for n in train.Graph().node}
        self.assertEqual({n: list(nodes[n].input) for n in nodes},
                         {"x": [], "d1": ["x"], "drop": ["d1"], "d2": ["drop"]})
        self.assertEqual(nodes["d1"].op, "Dense")

    def test_the_board_shows_the_model_and_the_config(self):
        self.train("-o", "run")
        multiplexer = plugin_event_multiplexer.EventMultiplexer()
        multiplexer.AddRunsFromDirectory(str(self.folder / "run"))
        multiplexer.Reload()
        self.assertEqual(set(multiplexer.Runs()), {"logs/train", "logs/validation"})
        tags = multiplexer.PluginRunToTagToContent("graph_keras_model")
        self.assertEqual(list(tags["logs/train"]), ["keras"])
        model = multiplexer.Tensors("logs/train", "keras")[0].tensor_proto.string_val[0]
        graph = keras_util.keras_model_to_graph_def(json.loads(model))
        self.assertIsInstance(graph, graph_pb2.GraphDef)
        self.assertIn("d2", "".join(n.name for n in graph.node))
        text = multiplexer.Tensors("logs/train", "config")[0].tensor_proto.string_val[0].decode()
        self.assertIn(CONFIG, text)

    def test_a_run_that_is_killed_and_resumed_has_each_step_once(self):
        self.train("-o", "whole", "fit.epochs=300", "callbacks.0.TensorBoard.update_freq=batch")
        command = [MESHTRAIN, "train", "c.yaml", "-o", "run", "--resume", "-q", "fit.epochs=300",
                   "callbacks.0.TensorBoard.update_freq=batch", "checkpoint.every=7 steps"]
        kills = 0
        for wait in (0.05, 0.12, 0.2, 0.3):
            process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        self.assertGreater(kills, 0)
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)
        for part in ("train", "validation"):
            once, again = (read(self.folder / r / "logs" / part) for r in ("whole", "run"))
            self.assertEqual(once.Tags()["scalars"], again.Tags()["scalars"])
            for tag in once.Tags()["scalars"]:
                if "per_second" in tag:
                    self.assertEqual([s for s, _ in scalars(once, tag)],
                                     [s for s, _ in scalars(again, tag)])
                else:
                    self.assertEqual(scalars(once, tag), scalars(again, tag), tag)

    def test_a_shared_folder_keeps_the_files_of_other_runs(self):
        shared = self.folder / "shared"
        place = f"callbacks.0.TensorBoard.log_dir={shared}"
        self.train("-o", "one", place)
        files = {p: p.read_bytes() for p in shared.rglob("*tfevents*")}
        self.assertEqual(len(files), 2)
        self.train("-o", "two", place)
        self.train("fit.epochs=6", command=("resume", "two"))
        self.assertEqual({p: p.read_bytes() for p in files}, files)
        self.assertGreater(len(list(shared.rglob("*tfevents*"))), 4)

    def test_wrong_arguments_are_refused_before_anything_is_written(self):
        result = self.train("-o", "run", "callbacks.0.TensorBoard.update_freq=often", code=2)
        self.assertIn("error[E112]: `update_freq` cannot be `often`", result.stderr)
        result = self.train("-o", "run", "callbacks.0.TensorBoard.log_dir=/proc/none/logs", code=74)
        self.assertIn("error[E142]", result.stderr)
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    MESHTRAIN = sys.argv.pop(1)
    unittest.main()
