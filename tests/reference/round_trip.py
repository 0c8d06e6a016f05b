#!/usr/bin/env python3
"""Sends Keras models through meshtrain and back, and compares weights and predictions.

  KERAS_BACKEND=jax python3 round_trip.py [--meshtrain BINARY]

For each model of io_models.py: Keras saves it; `meshtrain import` reads it; `meshtrain predict` must
predict as Keras does (1e-5); `meshtrain export` writes .keras, .weights.h5, .json, .npz and .py; Keras
loads each, and must have the very same weights and predictions within 1e-5.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_ENABLE_X64", "1")  # for the one model of float64

import keras
import numpy as np

import io_models

TOLERANCE = 1e-5
OTHER_WEIGHTS = {"halved", "filmstrip"}  # an import leaves some out, or names them anew
DISSOLVED = {"nested", "halved", "filmstrip"}  # come back flat: their weight files are not for nested models


class Failed(Exception):
    pass


def own_name(path, model):
    """A variable's path without the name of a Sequential around it."""
    prefix = model.name + "/"
    return path[len(prefix):] if path.startswith(prefix) else path


def weights_of(model):
    return [w.numpy() for w in model.weights if "seed_generator" not in w.path]


def check_same(what, expected, got):
    if len(expected) != len(got):
        raise Failed(f"{what}: {len(got)} weights for {len(expected)}")
    for a, b in zip(expected, got):
        if a.shape != b.shape or a.dtype != b.dtype or not np.array_equal(a, b):
            raise Failed(f"{what}: weights of shape {a.shape} differ")


def check_close(what, expected, got):
    worst = 0.0
    for a, b in zip(expected, got, strict=True):
        if a.shape != b.shape:
            raise Failed(f"{what}: predictions have shape {b.shape}, not {a.shape}")
        worst = max(worst, float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(a)))))
    if not worst <= TOLERANCE:
        raise Failed(f"{what}: predictions differ by {worst:.2e}")
    return worst


class RoundTrip:
    def __init__(self, binary, folder):
        self.binary = binary
        self.folder = pathlib.Path(folder)

    def meshtrain(self, *args):
        done = subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"meshtrain {' '.join(map(str, args))} exits with {done.returncode}:\n{done.stderr}")
        return done

    def predict(self, config, inputs, outputs):
        given, found = self.folder / "x.npz", self.folder / "y.npz"
        if len(inputs) == 1:
            np.savez(given, x=next(iter(inputs.values())))
        else:
            np.savez(given, **inputs)
        found = found if len(outputs) > 1 else self.folder / "y.npy"
        self.meshtrain("predict", config, "--weights", config.parent / "weights.safetensors", "--input", given,
                       "--output", found, "-q")
        if len(outputs) == 1:
            return [np.load(found)]
        archive = np.load(found)
        names = list(outputs) if set(outputs) == set(archive.files) else archive.files
        return [archive[name] for name in names]

    def run(self, seed, make):
        name = make.__name__
        keras.utils.clear_session()
        model = make()
        io_models.fill(model, seed)
        inputs = io_models.samples(model, seed, 5)
        outputs = io_models.predictions(model, inputs)
        expected, weights = list(outputs.values()), weights_of(model)
        saved = self.folder / f"{name}.keras"
        model.save(saved)
        folder = self.folder / name
        sizes = [f"--shape={x.name}=" + ",".join(str(size) for size in inputs[x.name].shape[1:])
                 for x in model.inputs if None in x.shape[1:]]
        self.meshtrain("import", saved, "-o", folder, *sizes)
        config = folder / "config.yaml"
        worst = [check_close("meshtrain predict", expected, self.predict(config, inputs, outputs))]
        ends = [".keras", ".weights.h5", ".json", ".npz", ".safetensors", ".py"]
        for end in ends:
            self.meshtrain("export", config, "-o", folder / f"out{end}", "-q")

        def compare(what, loaded):
            if name not in OTHER_WEIGHTS:
                check_same(what, weights, weights_of(loaded))
            worst.append(check_close(what, expected, list(io_models.predictions(loaded, inputs).values())))

        keras.utils.clear_session()
        compare("exported .keras", keras.saving.load_model(folder / "out.keras"))
        if name not in DISSOLVED:
            model.load_weights(folder / "out.weights.h5")
            compare("exported .weights.h5", model)
        from_json = keras.models.model_from_json((folder / "out.json").read_text())
        from_json.load_weights(folder / "out.weights.h5")
        compare("exported .json", from_json)
        archive = np.load(folder / "out.npz")
        by_path = {own_name(w.path, model): w.numpy() for w in model.weights if "seed_generator" not in w.path}
        if sorted(archive.files) == sorted(by_path):
            check_same("exported .npz", list(by_path.values()), [archive[path] for path in by_path])
        if name != "cast":  # its script sets a type that this process has set otherwise
            namespace = {"__file__": str(folder / "out.py")}
            exec(compile((folder / "out.py").read_text(), "out.py", "exec"), namespace)
            compare("exported .py", namespace["model"])
        if json.loads((folder / "out.json").read_text())["class_name"] not in ("Sequential", "Functional"):
            raise Failed("exported .json: neither Sequential nor Functional")
        return len(weights), max(worst)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meshtrain", default="meshtrain")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        trip = RoundTrip(arguments.meshtrain, folder)
        for seed, make in enumerate(io_models.MODELS):
            if arguments.models and make.__name__ not in arguments.models:
                continue
            try:
                count, worst = trip.run(100 + seed, make)
                print(f"{make.__name__:<12} {count:3} weights equal bit for bit, predictions within {worst:.1e}")
            except Failed as failure:
                failures += 1
                print(f"{make.__name__:<12} FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
