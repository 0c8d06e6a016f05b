#!/usr/bin/env python3
"""Writes what Keras computes for single layers, with gradients, to tests/golden/keras/layers*.json.
README.md states inputs and fields.

  KERAS_BACKEND=jax python layers.py [--new] [layers|layers_convolution|... ...]

With --new only cases that a file has not are computed; its other entries stay as they are.
"""
import float64  # before JAX

import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np

import layer_cases
import operation_cases
import splitmix
from made_layers import made

add_weight = keras.Layer.add_weight


def add_wide_weight(layer, *args, name=None, dtype=None, **kwargs):
    """Low-rank factors are float32 in Keras, whatever the policy: their gradients then are, too."""
    is_factor = name is not None and name.startswith("lora_")
    return add_weight(layer, *args, name=name, dtype="float64" if is_factor else dtype, **kwargs)


keras.Layer.add_weight = add_wide_weight
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "keras"
WHOLE = 36  # tensors of up to so many elements are written whole
SAMPLES = 18


def rounded(value):
    return float(f"{float(value):.13g}")


def tensor(array):
    """Shape and values; of large tensors every `step`-th value, and their sum and length."""
    array = np.asarray(array, np.float64)
    flat = array.reshape(-1)
    if flat.size <= WHOLE:
        return {"shape": list(array.shape), "values": [rounded(v) for v in flat]}
    step = -(-flat.size // SAMPLES) | 1
    return {"shape": list(array.shape), "step": step, "values": [rounded(v) for v in flat[::step]],
            "sum": rounded(flat.sum()), "length": rounded(np.sqrt((flat * flat).sum()))}


def nested(states, nesting):
    """The states as lists of lists, as a stack of cells takes them: [2, 1] for an LSTM and a GRU."""
    rest = iter(states)
    return [[next(rest) for _ in range(count)] if count > 1 else next(rest) for count in nesting]


def without_steps(array):
    """Zeros at each third step, counted on by two from sample to sample."""
    batch, steps = np.indices(array.shape[:2])
    return jnp.where(((2 * batch + steps) % 3 == 0)[..., None], 0.0, array)


def joined(y, case):
    if "outputs" not in case:
        return y
    y = jax.tree_util.tree_leaves(y)
    assert len(y) == len(case["outputs"])
    return jnp.concatenate([each.reshape(each.shape[0], -1) for each in y], axis=-1)


def inputs_of(case):
    if "integers" in case:
        return [jnp.asarray(splitmix.below(100 + i, case["integers"], s), jnp.int32) for i, s in enumerate(case["inputs"])]
    out = [jnp.asarray(splitmix.signed(100 + i, s, 2.0), jnp.float64) for i, s in enumerate(case["inputs"])]
    return [without_steps(out[0])] + out[1:] if "masked" in case else out


def weight_value(index, variable):
    value = splitmix.signed(200 + index, variable.shape)
    if "variance" in variable.name:  # must be positive
        value = splitmix.unit(200 + index, variable.shape) + np.float32(0.5)
    return value.astype(np.float64)


def name_of(variable):
    return variable.path.split("/", 1)[1]  # behind the layer's name


def compute(case):
    if "expression" in case:
        function = operation_cases.function_of(case["expression"])
        layer = keras.layers.Lambda(lambda given: function(*given) if isinstance(given, list) else function(given))
    else:
        layer = made({case["class_name"]: case["config"]})
    inputs = inputs_of(case)
    penalized = "activity_regularizer" in case["config"]
    separate, states = case.get("separate", False), case.get("states", False)

    def arguments(arrays):
        if states:  # beside a sequence
            return [arrays[0], nested(arrays[1:], case.get("nesting", [1] * (len(arrays) - 1)))]
        return arrays if separate else [arrays if len(arrays) > 1 else arrays[0]]

    layer(*arguments(inputs))
    weights = [v for v in layer.weights]
    for index, variable in enumerate(weights):
        variable.assign(weight_value(index, variable))
    kwargs = case.get("call", {})

    def call(trainable, arrays):
        state = [v.value for v in layer.non_trainable_variables]
        given = dict(kwargs)
        if "masked" in case:
            given["mask"] = jnp.any(arrays[0] != 0, axis=-1)
            arrays = [arrays[0] * given["mask"][..., None], *arrays[1:]]
        if penalized:  # stateless_call() of a layer leaves its own penalty out
            with keras.StatelessScope(list(zip(layer.trainable_variables, trainable)), collect_losses=True):
                y = layer(*arguments(arrays), **given)
                return (joined(y, case), sum(layer.losses)), state
        y, state = layer.stateless_call(trainable, state, *arguments(arrays), **given)
        return (joined(y, case), None), state

    trainable = [v.value for v in layer.trainable_variables]
    entry = {**case, "weights": [{"name": name_of(v), "shape": list(v.shape)} for v in weights]}
    if "integers" in case:
        (y, loss), pullback, state = jax.vjp(lambda t: call(t, inputs), trainable, has_aux=True)
    else:
        (y, loss), pullback, state = jax.vjp(call, trainable, inputs, has_aux=True)
    if y.dtype != jnp.float64:  # Keras computes a few layers in float32 whatever the policy
        entry["computed_in"] = str(y.dtype)
    gradients = pullback((jnp.asarray(splitmix.signed(300, y.shape), y.dtype), 1.0 if penalized else None))
    entry["output"] = tensor(y)
    if penalized:
        entry["added_loss"] = rounded(loss)
    entry["weight_gradients"] = {name_of(v): tensor(g) for v, g in zip(layer.trainable_variables, gradients[0])}
    if len(gradients) > 1:
        entry["input_gradients"] = [tensor(g) for g in gradients[1]]
    others = {v.name: tensor(s) for v, s in zip(layer.non_trainable_variables, state) if "seed" not in v.path}
    if others:
        entry["non_trainable_after"] = others
    return entry


RESULTS = {"weights", "computed_in", "output", "added_loss", "weight_gradients", "input_gradients", "non_trainable_after"}


def case_of(entry):
    return json.dumps({key: value for key, value in entry.items() if key not in RESULTS}, sort_keys=True)


def entries_of(name):
    entries = json.loads((GOLDEN / f"{name}.json").read_text())["cases"]
    return {case_of(entry): entry for entry in entries}


def write(name, known):
    entries = []
    for case in layer_cases.FILES[name]():
        try:
            entries.append(known.get(case_of(case)) or compute(case))
        except Exception as error:
            raise RuntimeError(f"{case['class_name']} {case['config']}") from error
    lines = ",\n".join(json.dumps(entry, allow_nan=False, separators=(",", ":")) for entry in entries)
    made_with = json.dumps({"keras": keras.__version__, "jax": jax.__version__})
    text = f'{{"made_with": {made_with},\n"cases": [\n{lines}\n]}}\n'
    GOLDEN.mkdir(parents=True, exist_ok=True)
    (GOLDEN / f"{name}.json").write_text(text)
    print(f"{name}: {len(entries)} cases, {len(text)} bytes")


if __name__ == "__main__":
    only_new = "--new" in sys.argv
    for name in [each for each in sys.argv[1:] if each != "--new"] or layer_cases.FILES:
        write(name, entries_of(name) if only_new else {})
