#!/usr/bin/env python3
"""Trains random models in Keras and in meshtrain, in float64, and compares losses and weights.

  KERAS_BACKEND=torch python random_training.py [--meshtrain BINARY] [--cases 200] [--first 0]

Takes five minutes with KERAS_BACKEND=torch, and ten times as long with jax, which compiles operations anew.

Each case draws an optimizer, a loss, clipping, averages of weights, accumulation, constraints, penalties, weights of
classes or samples, and BatchNormalization. Keras saves the compiled model; `meshtrain import` makes a config of it, which is trained on a
mesh of 2 x 2 with the same data. Losses of each epoch and the final weights must agree within 1e-6, relative to the
largest weight. Prints a line for each case that does not, and the counts, which begin anew at --first.
"""
import float64  # before JAX

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy as np
from safetensors.numpy import load_file

TOLERANCE = 1e-6
SAMPLES, FEATURES, CLASSES, BATCH, EPOCHS = 48, 6, 3, 8, 3


def repair_schedule_free():
    """Keras 3.15.1 reads the old momentum after its update on PyTorch, which updates tensors in place."""
    def assign_sub(_, variable, value):
        variable._value = variable.value - value  # a new tensor, so that the old one stays

    keras.optimizers.ScheduleFreeAdamW.assign_sub = assign_sub


def optimizer(random):
    """A class with arguments of its own, and some of those that all take."""
    o = keras.optimizers
    name, rate = random.choice([
        ("SGD", 0.05), ("RMSprop", 0.01), ("Adam", 0.01), ("AdamW", 0.01), ("Adamax", 0.01), ("Nadam", 0.01),
        ("Adagrad", 0.05), ("Adadelta", 0.5), ("Adafactor", 0.01), ("Lion", 0.003), ("Lamb", 0.01), ("Ftrl", 0.05),
        ("Muon", 0.01), ("ScheduleFreeAdamW", 0.01)])
    args = {"learning_rate": float(rate)}
    if name in ("SGD", "RMSprop") and random.random() < 0.5:
        args["momentum"] = 0.9
    if name == "SGD" and random.random() < 0.3:
        args["nesterov"] = True
    if name in ("Adam", "AdamW") and random.random() < 0.3:
        args["amsgrad"] = True
    if random.random() < 0.3:
        args["weight_decay"] = 0.01
    if random.random() < 0.4:
        args[random.choice(["clipnorm", "clipvalue", "global_clipnorm"])] = float(random.choice(["0.01", "0.5"]))
    if random.random() < 0.3:
        args.update(use_ema=True, ema_momentum=0.9)
        if random.random() < 0.5:
            args["ema_overwrite_frequency"] = 7
    if random.random() < 0.25:
        args["gradient_accumulation_steps"] = 2
    if random.random() < 0.2:
        args["loss_scale_factor"] = 4.0
    if random.random() < 0.2:
        args["learning_rate"] = o.schedules.ExponentialDecay(args["learning_rate"], 5, 0.9)
    return getattr(o, str(name))(**args)


def model_of(random):
    """The model, and what its targets are."""
    r, c, l = keras.regularizers, keras.constraints, keras.layers

    def constraint():
        return random.choice([None, None, c.MaxNorm(0.9), c.UnitNorm(), c.MinMaxNorm(0.3, 0.9, 0.7), "non_neg"])

    def penalty():
        return random.choice([None, None, r.L1(0.01), r.L2(0.01), r.OrthogonalRegularizer(0.01)])

    def uniform(low):
        return keras.initializers.RandomUniform(low, 0.6, seed=int(random.integers(1000)))

    kernel_constraint = constraint()
    kernel_penalty = penalty()
    layers = [keras.Input((FEATURES,)),
              l.Dense(5, activation=str(random.choice(["tanh", "sigmoid", "gelu", "softplus", "silu"])),
                      kernel_regularizer=kernel_penalty, kernel_constraint=kernel_constraint,
                      kernel_initializer=uniform(0.1 if kernel_constraint == "non_neg" else -0.5))]
    if random.random() < 0.3:
        layers.append(l.BatchNormalization())
    if random.random() < 0.2:
        layers.append(l.LayerNormalization())
    kind = str(random.choice(["numbers", "ids", "one_hot"]))
    layers.append(l.Dense(CLASSES, activation=None if kind == "numbers" else "softmax", bias_constraint=constraint(),
                          kernel_initializer=uniform(-0.5), activity_regularizer=penalty() if random.random() < 0.3 else None))
    return keras.Sequential(layers), kind


def loss_of(random, kind):
    l = keras.losses
    classes = {"numbers": [l.MeanSquaredError, l.MeanAbsoluteError, l.Huber, l.LogCosh, l.MeanSquaredLogarithmicError,
                           l.CosineSimilarity],
               "ids": [l.SparseCategoricalCrossentropy, l.Circle, l.CategoricalGeneralizedCrossEntropy],
               "one_hot": [l.CategoricalCrossentropy, l.CategoricalFocalCrossentropy, l.KLDivergence,
                           l.CategoricalHinge, l.Poisson, l.BinaryCrossentropy]}[kind]
    chosen = classes[int(random.integers(len(classes)))]
    return chosen(reduction=str(random.choice(["sum_over_batch_size", "sum", "mean_with_sample_weight"])))


def data_of(random, kind):
    x = random.uniform(-1, 1, (SAMPLES, FEATURES))
    if kind == "numbers":
        return x, random.uniform(0.1, 1, (SAMPLES, CLASSES))
    ids = random.integers(0, CLASSES, SAMPLES)
    return x, ids if kind == "ids" else np.eye(CLASSES)[ids]


def largest_difference(expected, found):
    scale = max(1.0, max(float(np.max(np.abs(e))) for e in expected))
    return max(float(np.max(np.abs(e - f))) for e, f in zip(expected, found, strict=True)) / scale


def run(binary, folder, number):
    random = np.random.default_rng(number)
    keras.utils.clear_session()
    model, kind = model_of(random)
    used = optimizer(random)
    model.compile(used, loss_of(random, kind))
    x, y = data_of(random, kind)
    fit = {"batch_size": BATCH, "epochs": EPOCHS}
    weight, weights = None, {}
    if kind != "numbers" and random.random() < 0.3:
        weight = {0: 0.5, 1: 2.0, 2: 1.0}
    elif random.random() < 0.3:
        weights = {"sample_weight": random.uniform(0.2, 2, SAMPLES)}
    model.save(folder / "m.keras")
    np.savez(folder / "train.npz", x=x, y=y.astype(np.int64) if kind == "ids" else y, **weights)
    model.run_eagerly = True  # the same operations; compiling each model takes longer than training it
    history = model.fit(x, y, shuffle=False, verbose=0, class_weight=weight, **weights, **fit).history["loss"]

    def meshtrain(*args):
        done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout

    meshtrain("import", "m.keras", "-o", "imported")
    overrides = [f"fit.{k}={v}" for k, v in fit.items()] + ["data.shuffle=false", "run.verbose=0"]
    if weight:
        overrides.append("fit.class_weight={" + ", ".join(f"{k}: {v}" for k, v in weight.items()) + "}")
    named = ", sample_weight: sample_weight" if weights else ""
    meshtrain("train", "imported/config.yaml", f"data={{train: {{source: npz, path: train.npz{named}}}}}",
              "distribution={type: DataParallel, device_mesh: {shape: [4], axis_names: [batch]}}", "-o", "run", "-q",
              *overrides)
    events = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [e["logs"]["loss"] for e in events if e["event"] == "epoch"]
    found = load_file(folder / "run" / "weights.safetensors")
    expected = {w.path.split("/", 1)[1]: keras.ops.convert_to_numpy(w.value) for w in model.weights}
    return (largest_difference([np.array(history)], [np.array(losses)]),
            largest_difference(list(expected.values()), [found[path] for path in expected]),
            f"{type(used).__name__} {used.get_config()} {model.loss.get_config()} {weight} {list(weights)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meshtrain", default="build/release/app/meshtrain")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    binary = pathlib.Path(args.meshtrain).resolve()
    if keras.backend.backend() == "torch":
        repair_schedule_free()
    agreed = 0
    for number in range(args.first, args.first + args.cases):
        with tempfile.TemporaryDirectory() as folder:
            try:
                loss, weights, what = run(binary, pathlib.Path(folder), number)
            except Exception as error:  # the other cases are of interest all the same
                print(f"{number}: {error}", flush=True)
                continue
        if max(loss, weights) <= TOLERANCE:
            agreed += 1
        else:
            print(f"{number}: losses differ by {loss:.1e}, weights by {weights:.1e}: {what}", flush=True)
        if number % 20 == 19:
            print(f"{agreed} of {number + 1 - args.first} agree so far, to {number}", flush=True)
    print(f"{agreed} of {args.cases} agree")
    return 0 if agreed == args.cases else 1


if __name__ == "__main__":
    sys.exit(main())
