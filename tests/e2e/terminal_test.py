#!/usr/bin/env python3
"""What a run leaves on a terminal: tmux captures at 20 to 200 columns, with resizing, NO_COLOR and tee.

  terminal_test.py MESHTRAIN

Each test runs a model with two outputs, long names and a validation. The bar moves meanwhile; at the end the screen has
the lines of the record and nothing else.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

MESHTRAIN = None

CONFIG = """
name: terminal
seed: 7
data:
  train:
    source: csv
    path: table.csv
    features: {numbers: [a, b, c]}
    label: {a_long_name_of_the_first_output: y, the_second_output_of_this_model: z}
  validation: {source: csv, path: table.csv}
model:
  layers:
    - Input: {name: numbers, shape: [3]}
    - Dense: {name: hidden, units: 64, activation: relu}
    - Dense: {name: a_long_name_of_the_first_output, units: 1, inputs: hidden}
    - Dense: {name: the_second_output_of_this_model, units: 1, inputs: hidden}
  outputs: [a_long_name_of_the_first_output, the_second_output_of_this_model]
compile:
  optimizer: {SGD: {learning_rate: 0.001}}
  loss: mse
  metrics:
    a_long_name_of_the_first_output: [mae]
    the_second_output_of_this_model: [mae]
fit: {batch_size: 6, epochs: 2, validation_batch_size: 1}
evaluate: {"on": none}
"""
END = "end of the run"  # printed behind it
ROWS = 60000  # of which validation has a step each: long enough to be seen on a fast machine
FINISHED = re.compile(r"10000/10000 \u2501{20} \d+s \S+/step( - \w+: [-+.\de]+){10}")
FIRST_SCREEN = ("meshtrain", "mesh ", "devices", "batch", "parameters", "saves", "run ")


class Tmux:
    """A terminal of its own server."""

    def __init__(self, columns, folder):
        self.name = f"meshtrain-{os.getpid()}-{columns}-{time.monotonic_ns()}"
        self.columns, self.folder = columns, folder

    def call(self, *args):
        result = subprocess.run(["tmux", "-L", self.name, "-f", "/dev/null", *args], capture_output=True, text=True)
        if result.returncode != 0:
            raise AssertionError(f"tmux {args}: {result.stderr}")
        return result.stdout

    def start(self, command):
        self.call("new-session", "-d", "-x", str(self.columns), "-y", "60", "-c", str(self.folder),
                  f"{command}; echo {END}; sleep 600")

    def screen(self, joined=True):
        """Rows without END; those that the terminal broke are one."""
        return [row for row in self.rows(joined) if row != END]

    def rows(self, joined=True):
        text = self.call("capture-pane", "-p", "-S", "-2000", *(["-J"] if joined else []))
        return [line.rstrip() for line in text.splitlines() if line.strip()]

    def wait(self, seconds=120, watch=lambda: None):
        """Until tmux has drawn all that the run wrote, which may be long after the run ended."""
        end = time.monotonic() + seconds
        while END not in self.rows():
            if time.monotonic() > end:
                raise AssertionError("the run did not end:\n" + "\n".join(self.screen()))
            watch()
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["tmux", "-L", self.name, "kill-server"], capture_output=True)


def record_of(rows):
    """What follows the first screen."""
    first = next(i for i, row in enumerate(rows) if row.startswith("Epoch 1/2"))
    return rows[first:]


class Terminal(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "small.yaml").write_text(CONFIG)
        rows = "".join(f"{i % 7},{i % 5},{i % 3},{i % 11},{i % 13}\n" for i in range(ROWS))
        (self.folder / "table.csv").write_text("a,b,c,y,z\n" + rows)

    def check_record(self, rows):
        record = record_of(rows)
        self.assertEqual(len(record), 4, "\n".join(rows))
        for epoch in (0, 1):
            self.assertEqual(record[2 * epoch], f"Epoch {epoch + 1}/2")
            self.assertRegex(record[2 * epoch + 1], FINISHED)
            self.assertIn("val_the_second_output_of_this_model_mae", record[2 * epoch + 1])

    def test_every_width(self):
        wide = []
        for columns in (20, 40, 80, 120, 200):
            with self.subTest(columns=columns), Tmux(columns, self.folder) as tmux:
                seen = []
                tmux.start(f"{MESHTRAIN} train small.yaml")
                tmux.wait(watch=lambda: seen.append(tmux.screen(joined=False)))
                self.check_record(tmux.screen())
                # While it moved, the bar was one row, the last one.
                moving = [rows for rows in seen if rows and re.match(r"(validation )?\s*\d+/[16]0000", rows[-1])
                          and not rows[-1].startswith("10000/10000")]
                self.assertTrue(moving, seen[-1:])
                for rows in moving:
                    self.assertLess(len(rows[-1]), columns)
                    before = rows[-2] if len(rows) > 1 else ""
                    self.assertNotRegex(before, r"^(validation )?\s*(\d{1,4}/10000|\d{1,5}/60000) ")
                wide += [rows[-1] for rows in moving] if columns >= 80 else []
        self.assertTrue(any(row.startswith("validation") for row in wide), wide)
        self.assertTrue(any("(all " in row for row in wide), wide)

    def test_resized(self):
        with Tmux(120, self.folder) as tmux:
            tmux.start(f"{MESHTRAIN} train small.yaml")
            widths = [60, 33, 150, 20, 80, 47, 100] * 20

            def resize():
                tmux.call("resize-window", "-x", str(widths.pop(0)), "-y", "60")
                time.sleep(0.2)

            tmux.wait(watch=lambda: widths and resize())
            tmux.call("resize-window", "-x", "200", "-y", "60")
            time.sleep(0.2)
            self.check_record(tmux.screen())

    def test_without_colour(self):
        with Tmux(60, self.folder) as tmux:
            tmux.start(f"NO_COLOR=1 {MESHTRAIN} train small.yaml")
            tmux.wait()
            self.check_record([row.replace("\u2500", "\u2501") for row in tmux.screen()])
            self.assertNotIn("\x1b[3", tmux.call("capture-pane", "-p", "-e"))

    def test_tee(self):
        with Tmux(60, self.folder) as tmux:
            tmux.start(f"{MESHTRAIN} train small.yaml | tee log.txt")
            tmux.wait()
            record = record_of(tmux.screen())
            self.assertEqual(record, [line.rstrip() for line in (self.folder / "log.txt").read_text().splitlines()])
            self.assertEqual(len(record), 4)  # each epoch once
            self.assertNotIn("\x1b", (self.folder / "log.txt").read_text())

    def test_stdout_in_a_file(self):
        with Tmux(80, self.folder) as tmux:
            tmux.start(f"{MESHTRAIN} train small.yaml > log.txt")
            tmux.wait()
            self.check_record(tmux.screen())
            self.assertEqual(len((self.folder / "log.txt").read_text().splitlines()), 4)


if __name__ == "__main__":
    MESHTRAIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if shutil.which("tmux") is None:
        print("skipped: there is no tmux (scripts/install_dependencies.sh installs it)")
        sys.exit(77)
    unittest.main(verbosity=2)
