#!/usr/bin/env python3
"""report.html of real runs: well-formed, alone, with the numbers of metrics.jsonl, nothing unescaped.

  report_test.py MESHTRAIN
"""
import html.parser
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

MESHTRAIN = None

# Names that would break a page that does not escape them.
CONFIG = """# <script>alert("comment")</script> ]]> & <!-- -->
name: '<img src=x onerror="alert(1)"> & "quoted"'
seed: 7
distribution:
  type: ModelParallel
  batch_dim_name: 'a<b'
  device_mesh: {shape: [2, 2], axis_names: ['a<b', '&amp;']}
  layout_map: {'d1/kernel': [null, '&amp;']}
data:
  train: {source: random, samples: 48, shape: [6], classes: 3, seed: 1}
  validation: {source: random, samples: 16, shape: [6], classes: 3, seed: 2}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 8, activation: relu}
    - Dense: {name: d2, units: 4}
compile:
  optimizer: {SGD: {learning_rate: 0.1}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 16, epochs: 3}
run: {log_steps: true}
"""


def run(folder, *args, code=0):
    result = subprocess.run([MESHTRAIN, *args], cwd=folder, capture_output=True, text=True)
    if result.returncode != code:
        raise AssertionError(f"{args}: exit {result.returncode}\n{result.stderr}")
    return result


def events(run_folder, kind):
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


class Loader(html.parser.HTMLParser):
    """Everything that a browser would fetch or run."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag in ("script", "img", "link", "iframe", "object", "embed", "audio", "video"):
            self.found.append(tag)
        for name, value in attributes:
            if name.startswith("on") or name in ("src", "href", "srcset", "data", "action"):
                self.found.append(f"{tag} {name}={value}")


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "c.yaml").write_text(CONFIG)
        run(cls.folder, "train", "c.yaml", "-o", "run")
        run(cls.folder, "resume", "run", "fit.epochs=5", "--mesh", "1x4")
        cls.text = (cls.folder / "run/report.html").read_text()
        cls.root = ET.fromstring(cls.text)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def section(self, title):
        for section in self.root.iter("section"):
            if section.find("h2").text.startswith(title):
                return section
        self.fail(f"no section {title}")

    def test_nothing_is_loaded_or_run(self):
        loader = Loader()
        loader.feed(self.text)
        self.assertEqual(loader.found, [])
        self.assertNotIn("url(", self.text)
        self.assertNotIn("@import", self.text)

    def test_names_are_shown_as_they_are(self):
        self.assertEqual(self.root.find("head/title").text,
                         '<img src=x onerror="alert(1)"> & "quoted"')
        self.assertEqual(self.root.find("body/main/header/div/h1").text,
                         self.root.find("head/title").text)
        config = self.section("Config").find("details/pre").text
        self.assertEqual(config, CONFIG)

    def test_the_epochs_have_the_numbers_of_metrics_jsonl(self):
        table = self.section("Epochs").find(".//table")
        heads = [th.text for th in table.iter("th")]
        epochs = events(self.folder / "run", "epoch")
        self.assertEqual([e["epoch"] for e in epochs], [1, 2, 3, 4, 5])
        rows = table.findall("tbody/tr")
        self.assertEqual(len(rows), len(epochs))
        for row, epoch in zip(rows, epochs):
            cells = dict(zip(heads, row.findall("td")))
            self.assertEqual(int(cells["epoch"].text.removesuffix(" (best)")), epoch["epoch"])
            self.assertEqual(float(cells["seconds"].find("data").get("value")), epoch["seconds"])
            self.assertEqual(set(heads[4:]), set(epoch["logs"]))
            for name, value in epoch["logs"].items():
                self.assertEqual(float(cells[name].find("data").get("value")), value)
                self.assertAlmostEqual(float(cells[name].find("data").text), value, delta=6e-4)

    def test_the_memory_and_the_layouts_are_those_of_the_plan(self):
        plan = json.loads((self.folder / "run/plan.json").read_text())
        memory = [int(d.get("value")) for d in self.section("Memory").iter("data")]
        self.assertEqual(memory, [plan["memory"][k] for k in ("weights", "optimizer", "step_arena")])
        paths = [code.text for code in self.section("Layouts").findall(".//tr/td[1]/code")]
        self.assertEqual(paths, [v["path"] for v in plan["variables"]])

    def test_curves_have_a_point_for_each_epoch_and_a_joint_where_it_was_resumed(self):
        figures = {f.find("figcaption/b").text: f for f in self.section("Curves").iter("figure")}
        self.assertEqual(set(figures), {"loss", "accuracy", "time of a step", "loss of each batch"})
        loss = figures["loss"]
        self.assertEqual([k.find("i").tail for k in loss.findall("figcaption/span")],
                         ["training", "validation"])
        self.assertEqual(len(loss.findall(".//circle")), 10)
        joint = loss.find(".//g[@class='joint']/title").text
        self.assertTrue(joint.startswith("resumed from run/checkpoints/"), joint)
        self.assertEqual(figures["loss of each batch"].find(".//svg") is not None, True)

    def test_the_time_line_has_a_lane_for_each_start_with_its_epochs_and_saves(self):
        section = self.section("Time line")
        lanes = section.findall(".//rect[@class='lane']")
        self.assertEqual(len(lanes), 2)
        blocks = [r for r in section.iter("rect") if r.get("class", "").startswith("block")]
        self.assertEqual(len(blocks), 5)
        self.assertGreaterEqual(len(section.findall(".//path[@class='save']")), 2)

    def test_what_resuming_changed_is_listed(self):
        rows = [[td.findtext("code") or td.text for td in tr.findall("td")]
                for tr in self.section("Changed").findall(".//tbody/tr")]
        self.assertIn(["2", "fit.epochs", "3", "5"], rows)

    def test_the_subcommand_makes_the_same_page_at_any_time(self):
        self.assertEqual(run(self.folder, "report", "run", "--output", "-").stdout, self.text)
        (self.folder / "run/report.html").unlink()
        self.assertEqual(run(self.folder, "report", "run/").stdout, "run/report.html\n")
        self.assertEqual((self.folder / "run/report.html").read_text(), self.text)
        nothing = run(self.folder, "report", "nowhere", code=6)
        self.assertTrue(nothing.stderr.startswith("error[E400]: `nowhere` is no run"))

    def test_a_run_cut_off_anywhere_still_has_a_page(self):
        cut = self.folder / "cut"
        (cut / "checkpoints").mkdir(parents=True)
        whole = (self.folder / "run/metrics.jsonl").read_bytes()
        for size in range(0, len(whole), 97):
            (cut / "metrics.jsonl").write_bytes(whole[:size])
            ET.fromstring(run(self.folder, "report", "cut", "--output", "-").stdout)
        (cut / "plan.json").write_text('{"mesh": {"axes": [{"name": 3}]}}')
        (cut / "meta.json").write_text("[1")
        (cut / "log.txt").write_text("no time\n2026-01-05T14:03:22.123Z epoch\n\xff\n", "latin-1")
        ET.fromstring(run(self.folder, "report", "cut", "--output", "-").stdout)

    def test_what_is_known_about_the_run_is_in_meta_json(self):
        meta = json.loads((self.folder / "run/meta.json").read_text())
        self.assertEqual(meta["exit_code"], 0)
        self.assertEqual(meta["seed"], 7)
        self.assertEqual(meta["mesh"]["shape"], [1, 4])
        self.assertEqual(meta["command_line"][1:],
                         ["resume", "run", "fit.epochs=5", "--mesh", "1x4"])
        self.assertEqual([e["mesh"]["shape"] for e in meta["earlier"]], [[2, 2]])
        self.assertLess(meta["started"], meta["ended"])
        layouts = json.loads((self.folder / "run/layout.json").read_text())
        self.assertEqual(layouts["d1/kernel"], '[null, &amp;]')

    def test_git_state_is_read_where_the_command_is_run(self):
        repository = self.folder / "git"
        repository.mkdir()
        (repository / "c.yaml").write_text(CONFIG)
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository)]
        try:
            subprocess.run([*git, "init", "-q", "-b", "trunk"], check=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("there is no git")
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True,
                              check=True).stdout.strip()
        run(repository, "train", "c.yaml", "-o", "one", "fit.epochs=1")
        meta = json.loads((repository / "one/meta.json").read_text())
        self.assertEqual(meta["git"], {"commit": head, "branch": "trunk"})
        subprocess.run([*git, "pack-refs", "--all"], check=True)
        run(repository, "train", "c.yaml", "-o", "two", "fit.epochs=1")
        self.assertEqual(json.loads((repository / "two/meta.json").read_text())["git"], meta["git"])


if __name__ == "__main__":
    MESHTRAIN = sys.argv.pop(1)
    unittest.main()
