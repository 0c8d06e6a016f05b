#!/usr/bin/env python3
"""Writes what SparseMoE computes, with gradients, to tests/golden/keras/layers_mixture.json: by Keras Hub's
MixtralSparseMoeBlock in float32, and step by step, expert by expert, in float64. Only the latter has capacities.
README.md states the fields. Needs keras-hub.

  KERAS_BACKEND=jax python mixture.py

`added_loss` is the loss that balances the experts; gradients are those of sum(output * signed(300)) plus this loss.
"""
import float64  # before JAX

import json
import math

import jax
import jax.numpy as jnp
import keras
import keras_hub
import numpy as np
from keras_hub.src.models.mixtral import mixtral_decoder

import layers
import splitmix

NAMES = ["sparse_feedforward_gate_dense/kernel", "experts/expert_feedforward_gate_dense",
         "experts/expert_feedforward_intermediate_dense", "experts/expert_feedforward_output_dense"]
ACTIVATIONS = {"silu": jax.nn.silu, "relu": jax.nn.relu, "tanh": jnp.tanh}


def shapes(config, width):
    n, inner = config["num_experts"], config["intermediate_dim"]
    return [[width, n], [n, width, inner], [n, width, inner], [n, inner, width]]


def by_hub(case, weights, x, mask):
    config = {**case["config"]}
    layer = mixtral_decoder.MixtralSparseMoeBlock(hidden_dim=x.shape[-1], dtype="float32", **config)
    layer.build(x.shape)
    assert [v.path.split("/", 1)[1] for v in layer.weights] == NAMES, [v.path for v in layer.weights]
    training = case.get("call", {}).get("training", False)
    (y, _), _, losses = layer.stateless_call(weights, [], x, attention_mask=mask, training=training,
                                             return_losses=True)
    return y, sum(losses, jnp.zeros(()))


def choices(probabilities, top_k):
    """Ids of the largest, the first of equals first."""
    return np.argsort(-np.asarray(probabilities), axis=-1, kind="stable")[..., :top_k]


def by_hand(case, weights, x, mask, chosen):
    config = {"top_k": 2, "activation": "silu", "router_aux_loss_coef": 0.02, **case["config"]}
    router, gate, intermediate, output = weights
    flat = x.ndim == 2
    if flat:
        x = x[:, None]
    batch, steps, width = x.shape
    n, k = config["num_experts"], config["top_k"]
    most = steps
    if "capacity_factor" in config:
        most = min(steps, math.ceil(config["capacity_factor"] * steps * k / n))
    probabilities = jax.nn.softmax(x @ router, axis=-1)
    y = []
    shares, means, count = [0] * n, jnp.zeros(n), 0
    for b in range(batch):
        taken = [0] * n
        for t in range(steps):
            valid = mask is None or bool(mask[b, t])
            ids = chosen[b, t]
            total = sum(probabilities[b, t, i] for i in ids)
            out = jnp.zeros(width)
            for i in ids:
                has_place = "capacity_factor" not in config or (valid and taken[i] < most)
                taken[i] += valid
                shares[i] += valid
                if has_place:
                    hidden = ACTIVATIONS[config["activation"]](x[b, t] @ gate[i]) * (x[b, t] @ intermediate[i])
                    share = probabilities[b, t, i] / total if k > 1 else 1.0
                    out = out + share * (hidden @ output[i])
            y.append(out)
            means = means + probabilities[b, t] * valid
            count += valid
    y = jnp.stack(y).reshape(x.shape)
    loss = n * sum(shares[i] / k / count * (means[i] / count) for i in range(n)) * config["router_aux_loss_coef"]
    training = case.get("call", {}).get("training", False)
    return (y[:, 0] if flat else y), (loss if training else jnp.zeros(()))


def compute(case, hub):
    dtype = jnp.float32 if hub else jnp.float64
    shape = case["inputs"][0]
    x = jnp.asarray(splitmix.signed(100, shape, 2.0), jnp.float64)
    mask = None
    if "masked" in case:
        x = layers.without_steps(x)
        mask = np.asarray(jnp.any(x != 0, axis=-1))
    x = x.astype(dtype)
    weights = [jnp.asarray(splitmix.signed(200 + i, s), dtype)
               for i, s in enumerate(shapes(case["config"], shape[-1]))]
    probabilities = jax.nn.softmax((x if x.ndim == 3 else x[:, None]) @ weights[0], axis=-1)
    chosen = choices(probabilities, case["config"].get("top_k", 2))

    def call(weights, x):
        if mask is not None:
            x = x * mask[..., None].astype(dtype)
        return by_hub(case, weights, x, mask) if hub else by_hand(case, weights, x, mask, chosen)

    (y, loss), pullback = jax.vjp(call, weights, x)
    slopes = pullback((jnp.asarray(splitmix.signed(300, y.shape), y.dtype), jnp.ones((), loss.dtype)))
    entry = {"class_name": "SparseMoE", **case, "weights": [{"name": n, "shape": list(w.shape)}
                                                           for n, w in zip(NAMES, weights)],
             "output": layers.tensor(y), "added_loss": layers.rounded(loss),
             "weight_gradients": {n: layers.tensor(g) for n, g in zip(NAMES, slopes[0])},
             "input_gradients": [layers.tensor(slopes[1])]}
    if hub:
        entry |= {"policy": "float32", "output_dtype": str(y.dtype)}
    return entry


def main():
    x, small, training = [[2, 5, 6]], {"num_experts": 4, "intermediate_dim": 5}, {"training": True}
    # The weight of one expert is 1, whose gradient Keras Hub gets as a difference: a large loss is well above its rounding.
    shared = [
        {"config": small, "inputs": x, "call": training},
        {"config": small, "inputs": x},
        {"config": {**small, "top_k": 1, "router_aux_loss_coef": 8.0}, "inputs": x, "call": training},
        {"config": {**small, "num_experts": 3, "top_k": 3}, "inputs": x, "call": training},
        {"config": {**small, "num_experts": 7, "top_k": 3}, "inputs": [[4, 8, 6]], "call": training},
        {"config": small, "inputs": x, "call": training, "masked": True},
    ]
    own = [
        {"config": {**small, "activation": "tanh"}, "inputs": [[6, 4]], "call": training},
        {"config": {**small, "activation": "relu", "router_aux_loss_coef": 0.0}, "inputs": x, "call": training},
    ]
    for factor in (0.5, 1.0, 1.25, 4.0):
        own.append({"config": {**small, "capacity_factor": factor}, "inputs": [[2, 8, 6]], "call": training})
    own += [
        {"config": {**small, "capacity_factor": 1.0, "top_k": 1}, "inputs": [[4, 6, 6]]},
        {"config": {**small, "capacity_factor": 0.75}, "inputs": [[2, 8, 6]], "call": training, "masked": True},
    ]
    entries = [compute(case, True) for case in shared] + [compute(case, False) for case in shared + own]
    for hub, hand in zip(entries[:len(shared)], entries[len(shared):]):
        assert abs(hub["added_loss"] - hand["added_loss"]) < 1e-6, (hub["config"], hub["added_loss"], hand["added_loss"])
        assert np.allclose(hub["output"]["values"], hand["output"]["values"], atol=1e-4), hub["config"]
    made_with = json.dumps({"keras": keras.__version__, "keras_hub": keras_hub.__version__, "jax": jax.__version__})
    lines = [json.dumps(entry, allow_nan=False, separators=(",", ":")) for entry in entries]
    text = f'{{"made_with": {made_with},\n"cases": [\n' + ",\n".join(lines) + "\n]}\n"
    (layers.GOLDEN / "layers_mixture.json").write_text(text)
    print(f"layers_mixture: {len(lines)} cases, {len(text)} bytes")


if __name__ == "__main__":
    main()
