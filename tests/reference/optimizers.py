#!/usr/bin/env python3
"""Writes what Keras' optimizers, regularizers and constraints compute, in float64, to
tests/golden/keras/{optimizers,penalties}.json. README.md states inputs and fields.

  KERAS_BACKEND=jax python optimizers.py [optimizers|penalties ...]
"""
import sys

from values import flat, tensor, write  # sets float64

import jax
import jax.numpy as jnp
import keras
import numpy as np

import splitmix

STEPS = 50
SHOWN = [1, 10, 50]
# A tall and a wide matrix, what Muon takes for an embedding, ranks 1 and 4.
WEIGHTS = {"kernel": (4, 3), "bias": (5,), "wide": (2, 5), "embeddings": (3, 2), "conv": (2, 2, 3, 2)}

LR = {"learning_rate": 0.01}
DECAY = {"class_name": "ExponentialDecay",
         "config": {"initial_learning_rate": 0.1, "decay_steps": 5, "decay_rate": 0.5}}
WARM = {"class_name": "CosineDecay",
        "config": {"initial_learning_rate": 0.005, "decay_steps": 30, "alpha": 0.1, "warmup_target": 0.05,
                   "warmup_steps": 10}}
# What every optimizer shares, once with each.
SHARED = [
    {"weight_decay": 0.1, "exclude_from_weight_decay": ["bias", "^conv$"]},
    {"clipnorm": 0.5, "use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 3},
    {"global_clipnorm": 0.7, "gradient_accumulation_steps": 3, "use_ema": True, "weight_decay": 0.05},
    {"clipvalue": 0.25, "learning_rate": WARM},
]
OWN = {
    "SGD": [{}, {"learning_rate": 0.1, "momentum": 0.9},
            {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
            {"learning_rate": 0.1, "loss_scale_factor": 8.0},
            {"learning_rate": DECAY, "gradient_accumulation_steps": 4}],
    "Adam": [{}, LR | {"amsgrad": True}, LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}],
    "AdamW": [{}, LR | {"weight_decay": 0.1, "amsgrad": True}],
    "RMSprop": [{}, LR | {"momentum": 0.9},
                LR | {"rho": 0.5, "momentum": 0.9, "epsilon": 1e-3, "centered": True}],
    "Adamax": [{}, LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}],
    "Nadam": [{}, LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}],
    "Adagrad": [{}, LR | {"initial_accumulator_value": 0.5, "epsilon": 1e-3}],
    "Adadelta": [{"learning_rate": 1.0}, {"learning_rate": 0.5, "rho": 0.8, "epsilon": 1e-3}],
    "Adafactor": [{}, LR | {"relative_step": False, "clip_threshold": 0.5}, {"learning_rate": 1.0},
                  LR | {"beta_2_decay": -0.5, "epsilon_1": 1e-3, "epsilon_2": 0.1}],
    "Lion": [{}, LR | {"beta_1": 0.8, "beta_2": 0.9, "weight_decay": 0.1}],
    "Lamb": [{}, LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}],
    "Ftrl": [{}, LR | {"l1_regularization_strength": 0.1, "l2_regularization_strength": 0.1,
                       "l2_shrinkage_regularization_strength": 0.1, "beta": 0.1},
             LR | {"learning_rate_power": -0.7, "initial_accumulator_value": 0.5}],
    "Muon": [{}, LR | {"momentum": 0.8, "nesterov": False, "ns_steps": 3},
             LR | {"exclude_layers": ["wid."], "exclude_embeddings": False, "adam_lr_ratio": 0.5},
             LR | {"rms_rate": None, "muon_a": 2.0, "muon_b": -1.5, "muon_c": 0.5,
                   "adam_weight_decay": 0.2}],
    "ScheduleFreeAdamW": [{}, LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3, "warmup_steps": 7}],
}
SCALED = [("SGD", {"learning_rate": 0.1, "momentum": 0.9}), ("Nadam", LR), ("Adafactor", LR),
          ("Adam", {"learning_rate": DECAY, "gradient_accumulation_steps": 2, "use_ema": True})]
SCALE = {"initial_scale": 16.0, "dynamic_growth_steps": 4}
NON_FINITE = {3: np.inf, 4: np.nan, 13: -np.inf}  # at these steps in the first element of `wide`


# Of several optimizers: that of all other weights, then those of others by path or pattern.
SEVERAL = [
    {"default_optimizer": ("Adam", LR), "loss_scale_factor": 4.0,
     "optimizer_map": {"kernel|wide": ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "global_clipnorm": 0.5}),
                       "bias": ("SGD", {"learning_rate": DECAY, "clipnorm": 0.1})}},
    {"default_optimizer": ("Nadam", LR | {"gradient_accumulation_steps": 3}),
     "optimizer_map": {".*": ("Nadam", LR | {"beta_1": 0.8, "gradient_accumulation_steps": 3, "use_ema": True,
                                             "ema_overwrite_frequency": 5}),
                       "conv": ("AdamW", LR | {"weight_decay": 0.1, "gradient_accumulation_steps": 3})}},
]


def make(name, config):
    if name == "MultiOptimizer":
        inner = {key: make(*member) for key, member in config["optimizer_map"].items()}
        return keras.optimizers.MultiOptimizer(
            keras.optimizers.OptimizerMap(make(*config["default_optimizer"]), inner),
            loss_scale_factor=config.get("loss_scale_factor"))
    arguments = dict(config)
    excluded = arguments.pop("exclude_from_weight_decay", None)
    if isinstance(arguments.get("learning_rate"), dict):
        spec = arguments["learning_rate"]
        arguments["learning_rate"] = getattr(keras.optimizers.schedules, spec["class_name"])(**spec["config"])
    optimizer = getattr(keras.optimizers, name)(**arguments)
    if excluded:
        optimizer.exclude_from_weight_decay(var_names=excluded)
    return optimizer


def variables():
    keras.backend.clear_session()  # names begin again
    return [keras.Variable(splitmix.signed(1 + i, shape, 2.0).astype(np.float64), name=name)
            for i, (name, shape) in enumerate(WEIGHTS.items())]


def gradients(step):
    """Weight i's gradient at a step counted from 1."""
    return [splitmix.signed(1000 * (i + 1) + step, shape).astype(np.float64)
            for i, shape in enumerate(WEIGHTS.values())]


def named(values):
    assert all(np.isfinite(v).all() for v in values), values
    return {name: [float(f"{x:.12g}") for x in flat(v)] for name, v in zip(WEIGHTS, values)}


def written(config):
    """Members of a MultiOptimizer as objects."""
    if isinstance(config, tuple):
        return {"class_name": config[0], "config": config[1]}
    return {k: written(v) for k, v in config.items()} if isinstance(config, dict) else config


def run(name, config):
    optimizer, weights = make(name, config), variables()
    optimizer.build(weights)
    apply = jax.jit(optimizer.stateless_apply)
    now, own = [v.value for v in weights], [v.value for v in optimizer.variables]
    entry = {"class_name": name, "config": written(config), "after": {}}
    for step in range(1, STEPS + 1):
        now, own = apply(own, gradients(step), now)
        if step in SHOWN:
            entry["after"][str(step)] = named(now)
    if config.get("use_ema"):
        for variable, value in zip(optimizer.variables, own):
            variable.assign(value)
        optimizer.finalize_variable_values(weights)
        entry["finalized"] = named([v.value for v in weights])
    return entry


def run_scaled(name, config):
    """The gradients are those of the scaled loss, some of them not finite."""
    inner, weights = make(name, config), variables()
    inner.build(weights)  # LossScaleOptimizer.build would not track Nadam's product: it would be lost
    optimizer = keras.optimizers.LossScaleOptimizer(inner, **SCALE)
    optimizer.build(weights)
    apply = jax.jit(optimizer.stateless_apply)
    now, own = [v.value for v in weights], [v.value for v in optimizer.variables]
    place = {v.path: i for i, v in enumerate(optimizer.variables)}
    place = [place[p] for p in ("loss_scale_optimizer/dynamic_scale", "loss_scale_optimizer/step_counter",
                                inner.name + "/iteration")]
    entry = {"class_name": name, "config": config, "loss_scale": SCALE, "after": {},
             "scales": [], "counters": [], "iterations": []}
    for step in range(1, STEPS + 1):
        grads = gradients(step)
        if step in NON_FINITE:
            grads[2][0, 0] = NON_FINITE[step]
        now, own = apply(own, [g * np.float64(own[place[0]]) for g in grads], now)
        for key, at in zip(("scales", "counters", "iterations"), place):
            entry[key].append(float(own[at]))
        if step in SHOWN:
            entry["after"][str(step)] = named(now)
    return entry


def optimizers():
    cases = [run(name, config) for name, own in OWN.items() for config in own]
    for name in OWN:
        cases += [run(name, LR | config) for config in SHARED]
    cases += [run("MultiOptimizer", config) for config in SEVERAL]
    scaled = [run_scaled(name, config) for name, config in SCALED]
    write("optimizers", {"weights": {n: list(s) for n, s in WEIGHTS.items()}, "cases": cases,
                         "scaled": scaled})


REGULARIZERS = [("L1", {}), ("L1", {"l1": 0.3}), ("L2", {}), ("L2", {"l2": 0.3}), ("L1L2", {}),
                ("L1L2", {"l1": 0.1, "l2": 0.2}), ("OrthogonalRegularizer", {}),
                ("OrthogonalRegularizer", {"factor": 0.5, "mode": "columns"})]
CONSTRAINTS = [("NonNeg", {}), ("MaxNorm", {}), ("MaxNorm", {"max_value": 0.5, "axis": [0, 1, 2]}),
               ("UnitNorm", {}), ("UnitNorm", {"axis": [0, 1, 2]}), ("UnitNorm", {"axis": -1}),
               ("MinMaxNorm", {}), ("MinMaxNorm", {"min_value": 0.5, "max_value": 0.9, "rate": 0.3}),
               ("MinMaxNorm", {"min_value": 3.0, "max_value": 4.0, "rate": 0.7, "axis": 1})]


def penalties():
    """Values and gradients of regularizers, projections by constraints, and a model with both."""
    regularized, constrained = [], []
    for name, config in REGULARIZERS:
        regularizer = getattr(keras.regularizers, name)(**config)
        for seed, shape in [(1, (4, 3)), (2, (5,)), (3, (2, 2, 3, 2))]:
            if name == "OrthogonalRegularizer" and len(shape) != 2:
                continue
            weight = jnp.asarray(splitmix.signed(seed, shape, 2.0), jnp.float64)
            value, gradient = jax.value_and_grad(lambda w: regularizer(w))(weight)
            regularized.append({"class_name": name, "config": config, "seed": seed, "shape": list(shape),
                                "value": float(value), "gradient": flat(gradient)})
    for name, config in CONSTRAINTS:
        constraint = getattr(keras.constraints, name)(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in config.items()})
        for seed, shape in [(1, (4, 3)), (2, (5,)), (3, (2, 2, 3, 2))]:
            axis = config.get("axis", 0)
            if max(axis if isinstance(axis, list) else [axis]) >= len(shape):
                continue
            weight = jnp.asarray(splitmix.signed(seed, shape, 2.0), jnp.float64)
            constrained.append({"class_name": name, "config": config, "seed": seed, "shape": list(shape),
                                "result": flat(constraint(weight))})
    write("penalties", {"cases": regularized, "constraints": constrained, "model": penalized_model()})


def penalized_model():
    """The losses of fit and evaluate, and the weights after 10 steps."""
    keras.backend.clear_session()
    l, r, c = keras.layers, keras.regularizers, keras.constraints
    x = keras.Input((6,))
    h = l.Dense(4, activation="tanh", name="d1", kernel_regularizer=r.L2(0.02), bias_regularizer="l1",
                kernel_constraint=c.MaxNorm(0.8), activity_regularizer=r.L1L2(0.01, 0.02))(x)
    y = l.Dense(3, name="d2", kernel_regularizer=r.OrthogonalRegularizer(0.1, "columns"),
                kernel_constraint=c.MinMaxNorm(0.2, 0.6, 0.5, 1), bias_constraint="non_neg",
                activity_regularizer="l2")(h)
    model = keras.Model(x, y)
    for i, v in enumerate(model.weights):
        v.assign(splitmix.signed(1 + i, v.shape).astype(np.float64))
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    data = splitmix.signed(101, (8, 6)).astype(np.float64), splitmix.signed(102, (8, 3)).astype(np.float64)
    before = float(model.evaluate(*data, batch_size=8, verbose=0))
    history = model.fit(*data, batch_size=8, epochs=10, shuffle=False, verbose=0).history
    return {"loss_before": before, "losses": [float(v) for v in history["loss"]],
            "weights": {v.path: tensor(v.value) for v in model.weights}}


if __name__ == "__main__":
    for function in [optimizers, penalties]:
        if function.__name__ in (sys.argv[1:] or ["optimizers", "penalties"]):
            function()
