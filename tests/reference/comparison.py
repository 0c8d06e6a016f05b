#!/usr/bin/env python3
"""Compares meshtrain with Keras on what Keras' own tests of layers build, and writes the table.

  KERAS_BACKEND=jax python comparison.py --meshtrain BINARY --keras CHECKOUT [--only CLASS ...] [--write comparison.md]

CHECKOUT is a checkout of Keras with its tests, of the version that is installed. Each case of keras_calls.py is a part
of a functional model of some thirty: `meshtrain import`, `predict` and `export` run once for a model, and Keras loads
what was exported. A model that fails is divided until the case that fails stands alone. Predictions must agree within
1e-5 of the largest (16 bits: a unit in their last place times 16), those of the loaded export as well. Masks that a test
gives are left out.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras.src import tree

import keras_calls

ALLOWED = {"float64": 1e-5, "float32": 1e-5, "float16": 2.0**-7, "bfloat16": 2.0**-4}
TOGETHER = 30  # cases of a model
FEW_VALUES = re.compile(r"[-+]?\d+\.\d+(e[-+]?\d+)?|\bc\d+(_\w+)?\b")


class Failed(Exception):
    pass


def one_line(text):
    return " ".join(str(text).split())[:300]


class Built:
    """A case as a part of a model: its inputs, their arrays, and its outputs."""

    def __init__(self, number, case):
        self.number, self.case, self.name = number, case, f"c{number}"
        self.inputs, self.arrays, self.result = [], {}, None
        layer = case.cls.from_config({**case.config, "name": self.name})
        args, kwargs = tree.map_structure(self.symbolic, (case.args, case.kwargs))
        outputs = tree.flatten(layer(*args, **kwargs))
        self.outputs = {f"{self.name}_out{i}": y for i, y in enumerate(outputs) if y is not None}
        self.samples = {len(array) for array in self.arrays.values()}
        if len(self.samples) != 1:
            raise Failed("its inputs have no batch in common")
        self.layer, self.expected = layer, None
        self.fill(np.random.default_rng(number))

    def symbolic(self, value):
        if not keras_calls.is_array(value):
            return value
        if value.ndim == 0:
            raise Failed("a number is its input")
        dtype = keras.backend.standardize_dtype(value.dtype)
        tensor = keras.Input(value.shape[1:], dtype=dtype, name=f"{self.name}_in{len(self.inputs)}")
        self.inputs.append(tensor)
        self.arrays[tensor.name] = value
        return tensor

    def fill(self, rng):
        """Values that show where each weight is; those that count or are adapted stay."""
        for weight in self.layer.weights:
            name = weight.path.rsplit("/", 1)[-1]
            is_float = "float" in keras.backend.standardize_dtype(weight.dtype)
            if "seed" in name or name == "count" or not is_float or self.case.class_name == "Normalization":
                continue
            values = rng.normal(0, 0.5, weight.shape)
            weight.assign(np.abs(values) + 0.2 if "variance" in name else values)


def predictions(model, built):
    given = {name: array for each in built for name, array in each.arrays.items()}
    return {name: np.asarray(y, np.float64) for name, y in model(given, training=False).items()}


def expect(model, built):
    """What Keras predicts, computed once."""
    if any(each.expected is None for each in built):
        found = predictions(model, built)
        for each in built:
            each.expected = {name: found[name] for name in each.outputs}


def distance(found, expected, dtype):
    """How far, in parts of what is allowed; or why not at all."""
    if found.shape != expected.shape:
        raise Failed(f"the shape is {list(found.shape)}, in Keras {list(expected.shape)}")
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)):
        raise Failed("other values are not finite")
    scale = max(1.0, np.abs(expected[finite]).max(initial=0))
    return np.abs(found[finite].astype(np.float64) - expected[finite]).max(initial=0) / scale / ALLOWED.get(dtype, 1e-5)


class Comparison:
    def __init__(self, binary):
        self.binary = binary
        self.results = {}  # number of a case -> (state, reason)

    def meshtrain(self, *args):
        done = subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(done.stderr.strip() or f"meshtrain {args[0]} exits with {done.returncode}")

    def record(self, each, state, reason=""):
        if each.number not in self.results:
            self.results[each.number] = (state, reason)
            if state != "agrees":
                print(f"{each.number} {each.case.class_name} {each.case.test}: {state}: {reason}", flush=True)

    def divide(self, built, stage, error):
        """Takes out what the message names, or the only one; else each half has another try."""
        named = {int(number) for number in re.findall(r"\bc(\d+)(?:_\w+|/\w+)*\b", str(error))}
        culprits = [each for each in built if each.number in named]
        if len(built) == 1 or (culprits and len(culprits) < len(built)):
            culprits = culprits or built
            for each in culprits:
                lines = [line for line in str(error).split("\n") if re.search(rf"\b{each.name}\b|{each.name}[_/]", line)]
                reason = lines[0] if lines else str(error).split("\n")[0]
                self.record(each, stage, one_line(reason))
            rest = [each for each in built if each not in culprits]
            return self.run(rest) if rest else None
        half = len(built) // 2
        self.run(built[:half])
        self.run(built[half:])

    def run(self, built):
        stage = "fails in Keras"
        try:
            inputs = [x for each in built for x in each.inputs]
            model = keras.Model(inputs, {name: y for each in built for name, y in each.outputs.items()}, name="cases")
            expect(model, built)
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                model.save(folder / "m.keras")
                stage = "refused"
                self.meshtrain("import", folder / "m.keras", "-o", folder / "in")
                stage = "predict fails"
                found = self.predict(folder, built)
                self.compare(built, found, "differs")
                stage = "export fails"
                self.meshtrain("export", folder / "in/config.yaml", "-o", folder / "out.keras", "-q")
                stage = "Keras does not load"
                again = keras.saving.load_model(folder / "out.keras")
                self.compare(built, predictions(again, built), "exported differs")
                for each in built:
                    self.record(each, "agrees")
        except Exception as error:
            self.divide(built, stage, error)

    def predict(self, folder, built):
        arrays = {name: array for each in built for name, array in each.arrays.items()}
        np.savez(folder / "x.npz", **(arrays if len(arrays) > 1 else {"x": next(iter(arrays.values()))}))
        outputs = [name for each in built for name in each.outputs]
        target = folder / ("y.npz" if len(outputs) > 1 else "y.npy")
        self.meshtrain("predict", folder / "in/config.yaml", "--weights", folder / "in/weights.safetensors", "-i",
                       folder / "x.npz", "-o", target, "-q")
        loaded = np.load(target)
        return {name: loaded[name] for name in loaded.files} if len(outputs) > 1 else {outputs[0]: loaded}

    def compare(self, built, found, state):
        for each in built:
            for name, y in each.outputs.items():
                try:
                    parts = distance(found[name], each.expected[name], keras.backend.standardize_dtype(y.dtype))
                    if not parts <= 1:
                        self.record(each, state, f"{parts:.1g} times what is allowed")
                except Failed as failure:
                    self.record(each, state, str(failure))


def build(cases):
    """(cases as parts of models by their number of samples, {number: reason} of those that are none)."""
    groups, unfit = collections.defaultdict(list), {}
    for number, case in enumerate(cases):
        try:
            each = Built(number, case)
            groups[each.samples.pop()].append(each)
        except Exception as error:
            unfit[number] = one_line(error)
    return groups, unfit


def general(reason):
    """A reason without numbers and names of cases, so that equal ones are counted together."""
    reason = re.sub(r"^error\[(E\d+)\]: (`[^`]*m\.keras`: )?", r"\1 ", reason)
    reason = re.sub(r"(`[^`]*/(?:in|config)[^`]*`:? ?|layer `c\d+` )", "", reason)
    return FEW_VALUES.sub("…", reason).replace("|", "/")


def table(cases, results):
    by_class = collections.defaultdict(collections.Counter)
    for number, (state, reason) in results.items():
        by_class[cases[number].class_name][(state, general(reason))] += 1
    lines = ["| class | calls | agree | the others |", "|---|---:|---:|---|"]
    for name, counts in sorted(by_class.items()):
        agree = sum(count for (state, _), count in counts.items() if state == "agrees")
        others = [f"{count} {state}: {reason}" for (state, reason), count in sorted(counts.items()) if state != "agrees"]
        lines.append(f"| `{name}` | {sum(counts.values())} | {agree} | {'<br>'.join(others)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meshtrain", required=True)
    parser.add_argument("--keras", required=True, help="a checkout of Keras, with its tests")
    parser.add_argument("--only", nargs="*", default=[], help="classes")
    parser.add_argument("--files", nargs="*", default=[], help="words of the names of test files")
    parser.add_argument("--write", help="a file for the table")
    args = parser.parse_args()
    cases, unusable = keras_calls.collect(args.keras, args.files)
    cases = [case for case in cases if not args.only or case.class_name in args.only]
    print(f"{len(cases)} calls, {len(unusable)} without a configuration", flush=True)
    groups, unfit = build(cases)
    comparison = Comparison(str(pathlib.Path(args.meshtrain).resolve()))
    for built in groups.values():
        for first in range(0, len(built), TOGETHER):
            comparison.run(built[first:first + TOGETHER])
            print(f"{len(comparison.results)} of {len(cases)}", end="\r", file=sys.stderr)
    results = comparison.results | {number: ("no model", reason) for number, reason in unfit.items()}
    for number, reason in unfit.items():
        print(f"{number} {cases[number].class_name} {cases[number].test}: no model: {reason}")
    counts = collections.Counter(state for state, _ in results.values())
    print(json.dumps(counts))
    if args.write:
        pathlib.Path(args.write).write_text(table(cases, results) + "\n")


if __name__ == "__main__":
    main()
