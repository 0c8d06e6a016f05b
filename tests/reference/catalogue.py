#!/usr/bin/env python3
"""Writes the names of Keras' classes and activations, family by family, to tests/golden/keras/catalogue.json.
Tests hold them against the catalogue and configs/KERAS.md: what Keras has is there, or named as missing.

  KERAS_BACKEND=jax python catalogue.py
"""
import inspect
import json
import pathlib

import keras

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "keras" / "catalogue.json"
FAMILIES = {
    "layer": keras.layers, "loss": keras.losses, "metric": keras.metrics, "optimizer": keras.optimizers,
    "schedule": keras.optimizers.schedules, "initializer": keras.initializers, "regularizer": keras.regularizers,
    "constraint": keras.constraints, "callback": keras.callbacks,
}


# Classes to derive from in Python.
BASES = ("Layer", "Wrapper", "InputSpec", "Loss", "Metric", "MeanMetricWrapper", "Optimizer", "OptimizerMap",
         "LearningRateSchedule", "Initializer", "Regularizer", "Constraint", "Callback", "CallbackList")


def classes(module):
    members = {name: getattr(module, name) for name in dir(module) if name[0].isupper()}
    return sorted(name for name, member in members.items() if inspect.isclass(member) and name not in BASES)


def activations():
    helpers = {"deserialize", "get", "serialize"}
    return sorted(name for name in dir(keras.activations)
                  if name[0] != "_" and name not in helpers and callable(getattr(keras.activations, name)))


if __name__ == "__main__":
    names = {family: classes(module) for family, module in FAMILIES.items()}
    names["activation"] = activations()
    lines = ",\n".join(f" {json.dumps(family)}: {json.dumps(each)}" for family, each in names.items())
    GOLDEN.write_text(f'{{"keras": {json.dumps(keras.__version__)},\n{lines}\n}}\n')
    print({family: len(each) for family, each in names.items()})
