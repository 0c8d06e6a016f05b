#!/usr/bin/env python3
"""Writes what Keras computes for single activations, with gradients, and schedules, in float64, to
tests/golden/keras. README.md states inputs and fields.

  KERAS_BACKEND=jax python values.py [activations|schedules|initializers ...]
"""
import float64  # before JAX

import json
import pathlib
import re
import sys
import textwrap

import jax
import jax.numpy as jnp
import keras
import numpy as np

import splitmix
import value_cases as cases

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "keras"


def flat(array):
    return [float(v) for v in np.asarray(array, np.float64).reshape(-1)]


def tensor(array):
    return {"shape": list(np.shape(array)), "values": flat(array)}


def write(name, content):
    content = {"made_with": {"keras": keras.__version__, "jax": jax.__version__}, **content}
    text = json.dumps(content, indent=1, allow_nan=False)

    def fold(match):
        items = " ".join(match.group(1).split())
        return "[" + textwrap.fill(items, 120, break_long_words=False, break_on_hyphens=False) + "]"

    text = re.sub(r"\[\s*([^\[\]{}]*?)\s*\]", fold, text)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    (GOLDEN / f"{name}.json").write_text(text + "\n")
    print(f"{name}: {len(content['cases'])} cases, {len(text)} bytes")


def activations():
    """y and dy/dx at each x, on kinks as well, where it is a matter of convention."""
    result = []
    points = np.array(cases.ACTIVATION_POINTS)
    for name, arguments in cases.ELEMENTWISE_ACTIVATIONS:
        def function(x, f=keras.activations.get(name), kw=arguments):
            return f(jnp.asarray(x), **kw)
        slope = np.asarray(jax.vmap(jax.grad(lambda v: function(v[None])[0]))(points))
        result.append({"name": name, "arguments": arguments, "y": flat(function(points)),
                       "gradient": flat(slope)})
    rows = splitmix.signed(1, (3, 6), 4.0).astype(np.float64)
    row_results = []
    for name, arguments in cases.ROW_ACTIVATIONS:
        def function(x, f=keras.activations.get(name), kw=arguments):
            return f(jnp.asarray(x), **kw)
        y, pullback = jax.vjp(function, jnp.asarray(rows))
        cotangent = splitmix.signed(2, y.shape).astype(np.float64)
        row_results.append({"name": name, "arguments": arguments, "y": tensor(y),
                            "gradient": tensor(pullback(jnp.asarray(cotangent))[0])})
    write("activations", {"x": flat(points), "cases": result, "row_cases": row_results})


def schedules():
    result = []
    for name, config in cases.SCHEDULES:
        schedule = getattr(keras.optimizers.schedules, name)(**config)
        result.append({"class_name": name, "config": config,
                       "values": [float(schedule(np.float64(s))) for s in range(cases.SCHEDULE_STEPS)]})
    write("schedules", {"cases": result})


def initializers():
    """STFT for kernels of shape [length, 1, bands]."""
    result = []
    for (length, bands), config in cases.STFTS:
        kernel = keras.initializers.STFT(**config)((length, 1, bands), dtype="float64")
        result.append({"class_name": "STFT", "config": config, "kernel": tensor(kernel)})
    write("initializers", {"cases": result})


if __name__ == "__main__":
    everything = [activations, schedules, initializers]
    chosen = sys.argv[1:] or [f.__name__ for f in everything]
    for function in everything:
        if function.__name__ in chosen:
            function()
