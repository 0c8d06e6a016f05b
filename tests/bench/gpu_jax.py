#!/usr/bin/env python3
"""JAX's side of the GPU benchmark, for one workload: gpu_jax.py WORKLOAD [--tiny]; commands as gpu_torch.py.

Modes: jit: one jitted step a call, its state donated, its batch on the device; keras: the same as Keras'
JAX trainer calls it, with metrics in the state and a NumPy batch handed over at each step; scan: 32
steps in one lax.scan over batches on the device.
"""
import argparse
import functools
import json
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other sides live on the same card

import jax
import jax.numpy as jnp
import numpy as np

import gpu_workloads as gw

SCAN = 32
ACTIVATIONS = {"linear": lambda x: x, "relu": jax.nn.relu, "softmax": jax.nn.softmax}


def forward(w, weights, x, key, dropout):
    """Outputs, and the statistics that BatchNormalization moves."""
    moved = {}
    if w.name[0] == "c":
        x = x * (1 / 255)
        for name, _, _, _, strides, padding, bias in gw.CONVOLUTIONS:
            x = jax.lax.conv_general_dilated(x, weights[f"{name}/kernel"], (strides, strides), padding.upper(),
                                             dimension_numbers=("NHWC", "HWIO", "NHWC"))
            if bias:
                x = x + weights[f"{name}/bias"]
            mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
            for statistic, value in (("mean", mean), ("variance", variance)):
                path = f"{name}_bn/moving_{statistic}"
                moved[path] = gw.BN_MOMENTUM * weights[path] + (1 - gw.BN_MOMENTUM) * value
            x = (x - mean) * jax.lax.rsqrt(variance + gw.BN_EPSILON) + weights[f"{name}_bn/beta"]
            x = jax.nn.relu(x)
        x = jnp.mean(x, (1, 2))
    dense = gw.dense_layers(w.name)
    dtype = jnp.bfloat16 if w.bf16 else jnp.float32
    x = x.astype(dtype)
    for layer in dense:
        rate = gw.DROPOUT[w.name[0]] if dropout and layer is dense[-1] else 0.0
        if rate:
            x = jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)
        x = x @ weights[f"{layer.name}/kernel"].astype(dtype)
        if layer.bias:
            x = x + weights[f"{layer.name}/bias"].astype(dtype)
        x = ACTIVATIONS[layer.activation](x)
    return x.astype(jnp.float32), moved


def loss_of(w, output, y):
    if w.loss == "mse":
        return jnp.mean((output - y) ** 2)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(output), y[:, None], 1))


def update(w, t, weight, gradient, slots):
    if w.optimizer == "sgd":
        return weight - gw.SGD["learning_rate"] * gradient, slots
    if w.optimizer == "rmsprop":
        v = gw.RMSPROP["rho"] * slots[0] + (1 - gw.RMSPROP["rho"]) * gradient**2
        return weight - gw.RMSPROP["learning_rate"] * gradient / jnp.sqrt(v + gw.RMSPROP["epsilon"]), (v,)
    b1, b2 = gw.ADAM["beta_1"], gw.ADAM["beta_2"]
    m, v = b1 * slots[0] + (1 - b1) * gradient, b2 * slots[1] + (1 - b2) * gradient**2
    rate = gw.ADAM["learning_rate"] * jnp.sqrt(1 - b2**t) / (1 - b1**t)
    return weight - rate * m / (jnp.sqrt(v) + gw.ADAM["epsilon"]), (m, v)


def first_state(w):
    weights = {path: jnp.asarray(value) for path, value in gw.first_weights(w).items()}
    trained = {p: v for p, v in weights.items() if "/moving_" not in p}
    fixed = {p: v for p, v in weights.items() if "/moving_" in p}
    slots = {"sgd": 0, "rmsprop": 1, "adam": 2}[w.optimizer]
    return {"trained": trained, "fixed": fixed, "step": jnp.zeros((), jnp.int32), "key": jax.random.key(1),
            "slots": {p: tuple(jnp.zeros_like(v) for _ in range(slots)) for p, v in trained.items()},
            "metrics": (jnp.zeros(()), jnp.zeros(()))}


def train_step(w, dropout, state, x, y):
    key, next_key = jax.random.split(state["key"])

    def objective(trained):
        output, moved = forward(w, trained | state["fixed"], x, key, dropout)
        return loss_of(w, output, y), moved

    (loss, moved), gradients = jax.value_and_grad(objective, has_aux=True)(state["trained"])
    t = (state["step"] + 1).astype(jnp.float32)
    done = {p: update(w, t, v, gradients[p], state["slots"][p]) for p, v in state["trained"].items()}
    total, count = state["metrics"]
    return {"trained": {p: d[0] for p, d in done.items()}, "slots": {p: d[1] for p, d in done.items()},
            "fixed": moved, "step": state["step"] + 1, "key": next_key,
            "metrics": (total + loss * x.shape[0], count + x.shape[0])}, loss


class Step:
    """One way to make training steps, with its own state."""

    def __init__(self, w, mode, dropout=True):
        self.mode, self.state, self.index = mode, first_state(w), 0
        x, labels = gw.batches(w)
        y = gw.targets(w, labels)
        one = functools.partial(train_step, w, dropout)
        self.call = jax.jit(one, donate_argnums=0)
        if mode == "scan":
            repeat = SCAN // gw.BATCHES
            self.data = tuple(jnp.asarray(np.concatenate([a] * repeat)) for a in (x, y))
            self.call = jax.jit(lambda state, x, y: jax.lax.scan(lambda s, b: one(s, *b), state, (x, y)),
                                donate_argnums=0)
        elif mode == "keras":
            self.data = list(zip(x, y))
        else:
            self.data = [(jnp.asarray(a), jnp.asarray(b)) for a, b in zip(x, y)]

    def launch(self):
        """One call; its loss, or those of 32 steps."""
        data = self.data if self.mode == "scan" else self.data[self.index % gw.BATCHES]
        self.index += 1
        self.state, loss = self.call(self.state, *data)
        return loss

    def losses(self, count):
        values = []
        while len(values) < count:
            values += np.ravel(self.launch()).tolist()
        return values[:count]

    def median_us(self, steps):
        per_call = SCAN if self.mode == "scan" else 1
        calls = max(1, steps // gw.chunks(steps) // per_call)
        times = []
        for _ in range(gw.chunks(steps)):
            jax.block_until_ready(self.state)
            start = time.perf_counter()
            for _ in range(calls):
                self.launch()
            jax.block_until_ready(self.state)
            times.append((time.perf_counter() - start) / (calls * per_call))
        return statistics.median(times) * 1e6


class Server:
    def __init__(self, w):
        self.w = w

    @functools.cache
    def step_of(self, mode):
        return Step(self.w, mode)

    def answer(self, command, *rest):
        if command == "modes":
            return ["jit", "keras", "scan"]
        if command == "prepare":
            return {"losses": self.step_of(rest[0]).losses(gw.CHECK_STEPS)}
        if command == "check":
            with jax.default_matmul_precision("highest"):
                return {"losses": Step(self.w, "jit", dropout=False).losses(gw.CHECK_STEPS)}
        if command == "run":
            return {"us": self.step_of(rest[0]).median_us(int(rest[1]))}
        if command == "first":
            return {"loss": float(self.step_of("jit").launch())}
        raise ValueError(f"unknown command {command}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    server = Server(gw.workloads(arguments.tiny)[arguments.workload])
    for line in sys.stdin:
        try:
            answer = server.answer(*line.split())
        except Exception as error:  # a mode that this JAX cannot do is a figure that is missing
            answer = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
