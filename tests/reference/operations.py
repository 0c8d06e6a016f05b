#!/usr/bin/env python3
"""Sends functional graphs of keras.ops through meshtrain and back, and trains them in both.

  KERAS_BACKEND=jax python3 operations.py --meshtrain BINARY [EXPRESSION...]

For each expression of operation_cases.py: a model with it between Dense layers is saved by Keras and
imported; it must predict the same (1e-5) on one device and on 2x2 with a split kernel, have the same
losses in four steps of SGD in float64 (1e-9) on both, and come back by .keras and .py with the same
operations and predictions.
"""
import float64  # noqa: F401  before JAX

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy as np
from keras import layers as L

import operation_cases

SAMPLES, STEPS = 8, 4
# Its Norm, Quantile and ConvTranspose cannot be called in a graph, and its adaptive pools have another shape there.
KERAS_FAILS = {"quantile(x, 0.3, axis=1)", "quantile(x, [0.2, 0.7], axis=1)[1]",
               "norm(x, axis=-1)", "norm(x, ord=1, axis=1)",
               "conv_transpose(x[..., :1], [[[0.5]], [[-1]], [[0.25]]], strides=2)",
               "conv_transpose(x[..., :1], [[[0.5]], [[-1]], [[0.25]]], strides=2, padding='same', output_padding=1)",
               "adaptive_max_pool(x[..., None], (2, 3))", "adaptive_average_pool(x[..., None], (2, 2))"}
# Results without the batch, between operations: such a graph is refused on import.
WITHOUT_BATCH = {"x - mean(x, axis=0, keepdims=True)", "x / (sum(x * x) + 1)", "ravel(x)[:5] * x",
                 "x1 * mean(vstack([x1, x2]), axis=0, keepdims=True)", "vdot(x1, x2) * x1",
                 "outer(x1[:, 0, 0], x2[0, 0])", "inner(x1, x2[0])",
                 "tensordot(x1, x2[0], axes=[[2], [1]])", "tensordot(x1, x2[0], axes=2)", "dot(x1, transpose(x2[0]))",
                 "conv(x1, expand_dims(x2[0, :3], 2))", "layer_normalization(x1, x2[0, 0], x2[0, 1])",
                 "matmul(x1, x2[0, 0])", "einsum('bij,bkj', x1, x2)[0] + x1[:, :, :4]"}
MESHES = {"1x1": "cpu:1", "2x2": "cpu:4"}
SPLIT = ["distribution.type=ModelParallel", "distribution.device_mesh={shape: [1, 1], axis_names: [data, model]}",
         'distribution.layout_map["first_0/kernel"]=[model,null]', "distribution.layout_map[last/kernel]=[null,model]"]


def formula(shape, seed):
    index = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    return np.sin(index * 1.7 + seed * 0.9) * 0.8


def make(expression, count):
    x = keras.Input((4, 4), name="x")
    tensors = [L.Dense(5, name=f"first_{i}")(x) for i in range(count)]
    y = operation_cases.function_of(expression)(*tensors)
    y = L.Dense(4, name="last")(L.Flatten(name="flat")(y))
    model = keras.Model(x, y, name="operations")
    model.compile(keras.optimizers.SGD(0.02), "mse")
    for i, weight in enumerate(model.weights):
        weight.assign(formula(weight.shape, i))
    return model


class Failed(Exception):
    pass


def distance(found, expected):
    return float(np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected))))


def operations_of(model):
    return sorted(o.__class__.__name__ for o in model.operations if not isinstance(o, keras.Layer))


def loads_again(path, x):
    """Whether Keras loads and runs what it saved: arguments that are tuples come back as lists."""
    try:
        keras.saving.load_model(path).predict(x, verbose=0)
        return True
    except Exception:
        return False


class Trip:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def meshtrain(self, *args):
        done = subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"meshtrain {args[0]}: {done.stderr.strip()}")
        return done.stdout

    def losses(self, mesh):
        arguments = [f"data.train={{source: npz, path: {self.folder}/data.npz}}", "data.shuffle=false",
                     f"fit.batch_size={SAMPLES}", f"fit.epochs={STEPS}", "dtype_policy=float64", "--log-format", "json"]
        text = self.meshtrain("train", self.folder / "in/config.yaml", "-o", self.folder / f"run{mesh}",
                              "--mesh", mesh, "--devices", MESHES[mesh], *SPLIT, *arguments)
        events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [event["logs"]["loss"] for event in events if event.get("event") == "epoch"]

    def run(self, expression, count):
        x, y = formula((SAMPLES, 4, 4), 11), formula((SAMPLES, 4), 12)
        np.savez(self.folder / "data.npz", x=x, y=y)
        np.save(self.folder / "x.npy", x.astype("float32"))
        keras.utils.clear_session()
        keras.config.set_dtype_policy("float64")
        model = make(expression, count)
        expected = model.predict(x, verbose=0)
        operations = operations_of(model)
        model.save(self.folder / "m.keras")
        wanted = [float(model.train_on_batch(x, y)) for _ in range(STEPS)]
        loads = loads_again(self.folder / "m.keras", x)
        self.meshtrain("import", self.folder / "m.keras", "-o", self.folder / "in")
        config = self.folder / "in/config.yaml"
        worst, drift = 0.0, 0.0
        for mesh, devices in MESHES.items():
            self.meshtrain("predict", config, "--weights", self.folder / "in/weights.safetensors", "--input",
                           self.folder / "x.npy", "--output", self.folder / "y.npy", "-q", "--mesh", mesh,
                           "--devices", devices, *SPLIT)
            worst = max(worst, distance(np.load(self.folder / "y.npy"), expected))
            drift = max(drift, distance(np.array(self.losses(mesh)), np.array(wanted)))
        for end in (".keras", ".py", ".weights.h5"):
            self.meshtrain("export", config, "-o", self.folder / f"out{end}", "-q")
        keras.utils.clear_session()
        kept = operations
        if loads:
            loaded = keras.saving.load_model(self.folder / "out.keras")
            worst = max(worst, distance(loaded.predict(x, verbose=0), expected))
            kept = operations_of(loaded)
        namespace = {"__file__": str(self.folder / "out.py")}
        exec(compile((self.folder / "out.py").read_text(), "out.py", "exec"), namespace)
        namespace["model"].load_weights(self.folder / "out.weights.h5")
        worst = max(worst, distance(namespace["model"].predict(x, verbose=0), expected))
        lost = [name for name in operations if name not in kept]  # activations become Activation layers
        # JAX computes the scores of attention in float32, whatever the dtype.
        if worst > 1e-5 or drift > (1e-6 if "attention" in expression else 1e-9):
            raise Failed(f"predictions differ by {worst:.1e}, losses by {drift:.1e}")
        return worst, drift, lost if loads else ["(Keras cannot load its own file)"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meshtrain", required=True)
    parser.add_argument("expressions", nargs="*")
    arguments = parser.parse_args()
    failed = 0
    cases = [(e, 1) for e in operation_cases.ONE] + [(e, 2) for e in operation_cases.TWO]
    with tempfile.TemporaryDirectory() as folder:
        for i, (expression, count) in enumerate(cases):
            if expression in KERAS_FAILS | WITHOUT_BATCH:
                continue
            if arguments.expressions and expression not in arguments.expressions:
                continue
            trip = Trip(arguments.meshtrain, pathlib.Path(folder) / str(i))
            trip.folder.mkdir()
            try:
                worst, drift, lost = trip.run(expression, count)
                print(f"{expression:<60} {worst:.0e} {drift:.0e} {' '.join(lost)}", flush=True)
            except Exception as error:
                failed += 1
                print(f"{expression:<60} FAILED: {type(error).__name__}: {error}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
