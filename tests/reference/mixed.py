#!/usr/bin/env python3
"""Writes what Keras 3 on JAX computes with dtype policies of 16 bits: single layers with gradients to
tests/golden/keras/layers_mixed.json, short training runs to tests/golden/parity/mixed.json. README.md states the fields.

  KERAS_BACKEND=jax python mixed.py [layers|training ...]
"""
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np

import layer_cases
import splitmix
from made_layers import OTHERS, made

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
MADE_WITH = {"keras": keras.__version__, "jax": jax.__version__}
HALF = {"mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}

# --- layers --------------------------------------------------------------------------------------

WHOLE = 18  # tensors of up to so many elements are written whole, of others about so many


def tensor(array):
    flat = np.asarray(array, np.float64).reshape(-1)
    short = lambda value: float(f"{value:.6g}")
    out = {"shape": list(array.shape), "values": [short(v) for v in flat]}
    if flat.size > WHOLE:
        step = -(-flat.size // WHOLE) | 1
        out |= {"step": step, "values": [short(v) for v in flat[::step]], "sum": short(flat.sum()),
                "length": short(np.sqrt((flat * flat).sum()))}
    return out


# In 16 bits their values meet the ends of the range and kinks, where roundings decide; and Keras' CategoryEncoding
# returns float32 against its own output spec.
LEFT_OUT = ("AutoContrast", "Solarization", "RandomHue", "RandomColorJitter", "CategoryEncoding")


def one_case_of_each_class():
    """In float16 a few of them: casts are the same in all layers."""
    seen, cases = set(), []
    for file in layer_cases.FILES.values():
        for case in file():
            if case["class_name"] in (*seen, *LEFT_OUT) or "expression" in case or (
                    not hasattr(keras.layers, case["class_name"]) and case["class_name"] not in OTHERS):
                continue
            seen.add(case["class_name"])
            is_half = case["class_name"] == "STFTSpectrogram"  # Keras' takes no bfloat16
            cases.append({**case, "policy": "mixed_float16" if is_half else "mixed_bfloat16"})
            if case["class_name"] in ("Dense", "Conv2D", "Embedding", "BatchNormalization", "LayerNormalization",
                                      "RMSNormalization", "Softmax", "MaxPooling2D", "AveragePooling2D", "Add"):
                cases.append({**case, "policy": "mixed_float16"})
    return cases


def weight_value(index, variable):
    value = splitmix.signed(200 + index, variable.shape)
    if "variance" in variable.name:
        value = splitmix.unit(200 + index, variable.shape) + np.float32(0.5)
    return value


def name_of(variable):
    return variable.path.split("/", 1)[1]  # behind the layer's name


def layer(case):
    keras.config.set_dtype_policy(case["policy"])  # of layers within others, too
    built = made({case["class_name"]: case["config"]})
    keras.config.set_dtype_policy("float32")
    if "integers" in case:
        inputs = [jnp.asarray(splitmix.below(100 + i, case["integers"], s), jnp.int32)
                  for i, s in enumerate(case["inputs"])]
    else:
        inputs = [jnp.asarray(splitmix.signed(100 + i, s, 2.0)) for i, s in enumerate(case["inputs"])]
    separate = case.get("separate", False)
    arguments = lambda arrays: arrays if separate else [arrays if len(arrays) > 1 else arrays[0]]
    built(*arguments(inputs))
    for index, variable in enumerate(built.weights):
        variable.assign(weight_value(index, variable))
    trainable = [v.value for v in built.trainable_variables]

    @jax.jit
    def run(trainable, inputs):
        def call(trainable, arrays):  # stateless_call would leave autocast out
            mapping = list(zip(built.trainable_variables, trainable))
            with keras.StatelessScope(state_mapping=mapping) as scope:
                y = built(*arguments(arrays), **case.get("call", {}))
            state = [scope.get_current_value(v) for v in built.non_trainable_variables]
            return y, [v.value if s is None else s for v, s in zip(built.non_trainable_variables, state)]

        if "integers" in case:
            y, pullback, state = jax.vjp(lambda t: call(t, inputs), trainable, has_aux=True)
        else:
            y, pullback, state = jax.vjp(call, trainable, inputs, has_aux=True)
        return y, pullback(jnp.asarray(splitmix.signed(300, y.shape), y.dtype)), state

    y, gradients, state = run(trainable, inputs)
    entry = {**case, "weights": [{"name": name_of(v), "shape": list(v.shape)} for v in built.weights],
             "output_dtype": str(y.dtype), "output": tensor(y),
             "weight_gradients": {name_of(v): tensor(g) for v, g in zip(built.trainable_variables, gradients[0])}}
    assert all(v.dtype == "float32" for v in built.trainable_variables)
    if len(gradients) > 1:
        entry["input_gradients"] = [tensor(g) for g in gradients[1]]
    others = {v.name: tensor(s) for v, s in zip(built.non_trainable_variables, state) if "seed" not in v.path}
    if others:
        entry["non_trainable_after"] = others
    return entry


def write_layers():
    entries = []
    for case in one_case_of_each_class():
        try:
            entries.append(json.dumps(layer(case), separators=(",", ":")))
        except Exception as error:
            raise RuntimeError(f"{case['class_name']} {case['config']}") from error
    text = f'{{"made_with": {json.dumps(MADE_WITH)},\n"cases": [\n' + ",\n".join(entries) + "\n]}\n"
    (GOLDEN / "keras" / "layers_mixed.json").write_text(text)
    print(f"layers_mixed: {len(entries)} cases, {len(text)} bytes")


# --- training ------------------------------------------------------------------------------------

SAMPLES, BATCH, STEPS = 640, 64, 50


def make_data(model):
    y = np.arange(SAMPLES) % 10
    x = splitmix.signed(401, (10, 144))[y] + np.float32(0.5) * splitmix.signed(402, (SAMPLES, 144))
    return x.reshape((SAMPLES, 12, 12, 1)) if model == "convnet" else x, y.astype(np.int32)


def make_model(model):
    layers = keras.layers
    if model == "mlp":
        return keras.Sequential([
            layers.Input((144,)), layers.Dense(64, activation="relu", name="d1"),
            layers.Dense(64, activation="tanh", name="d2"), layers.Dense(10, name="d3", dtype="float32")])
    return keras.Sequential([
        layers.Input((12, 12, 1)), layers.Conv2D(8, 3, activation="relu", name="c1"),
        layers.BatchNormalization(name="bn"), layers.MaxPooling2D(2),
        layers.Conv2D(16, 3, padding="same", use_bias=False, name="c2"), layers.LayerNormalization(name="ln"),
        layers.ReLU(), layers.GlobalAveragePooling2D(), layers.Dense(10, name="d1", dtype="float32")])


OPTIMIZERS = {"adam": lambda: keras.optimizers.Adam(2e-3),
              "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9)}
RUNS = [(model, "adam", policy) for model in ("mlp", "convnet")
        for policy in ("float32", "mixed_bfloat16", "mixed_float16")]
RUNS += [("mlp", "sgd", policy) for policy in ("bfloat16", "float16")]


def train(model_name, optimizer, policy):
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)
    model = make_model(model_name)
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    weights = {}
    for index, variable in enumerate(model.variables):
        if len(variable.shape) < 2:
            continue  # what it begins as in every library
        scale = 2.0 ** -3
        weights[variable.path.removeprefix(model.name + "/")] = {"shape": list(variable.shape), "seed": 410 + index, "scale": scale}
        variable.assign(splitmix.signed(410 + index, variable.shape, scale).astype("float32"))
    x, y = make_data(model_name)
    losses, scales = [], []
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    for step in range(STEPS):
        begin = step * BATCH % SAMPLES
        model.reset_metrics()
        losses.append(float(f"{float(model.train_on_batch(x[begin:begin + BATCH], y[begin:begin + BATCH])):.7g}"))
        if scaled:
            inner = model.optimizer.inner_optimizer
            scales.append([float(model.optimizer.dynamic_scale.numpy()), int(model.optimizer.step_counter.numpy()),
                           int(inner._iterations.numpy())])  # `iterations` counts updates where gradients accumulate
    entry = {"initial_weights": weights, "losses": losses}
    if scaled:
        entry["scales"] = scales
    return entry


def write_training():
    entries = []
    for model, optimizer, policy in RUNS:
        entries.append({"model": model, "optimizer": optimizer, "policy": policy,
                        **train(model, OPTIMIZERS[optimizer](), policy)})
        print(model, optimizer, policy, entries[-1]["losses"][0], entries[-1]["losses"][-1], flush=True)
    # Where a gradient of the convnet comes near to 65504, rounding decides: its scale does not grow again.
    for model, growth in (("mlp", 5), ("convnet", 1000)):
        scale = {"initial_scale": 2.0 ** 26, "dynamic_growth_steps": growth}
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05), **scale)
        entries.append({"model": model, "optimizer": "scaled_sgd", "policy": "mixed_float16", "scale": scale,
                        **train(model, optimizer, "mixed_float16")})
        print(model, entries[-1]["scales"], flush=True)
    # Steps whose gradients are not finite are no part of what accumulates.
    scale = {"initial_scale": 2.0 ** 26, "dynamic_growth_steps": 4}
    inner = keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=3)
    entries.append({"model": "mlp", "optimizer": "scaled_accumulating_sgd", "policy": "mixed_float16", "scale": scale,
                    **train("mlp", keras.optimizers.LossScaleOptimizer(inner, **scale), "mixed_float16")})
    print(entries[-1]["scales"], flush=True)
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    text = f'{{"made_with": {json.dumps(MADE_WITH)}, "batch": {BATCH}, "samples": {SAMPLES},\n"runs": [\n{lines}\n]}}\n'
    (GOLDEN / "parity" / "mixed.json").write_text(text)


if __name__ == "__main__":
    for part in sys.argv[1:] or ("layers", "training"):
        {"layers": write_layers, "training": write_training}[part]()
