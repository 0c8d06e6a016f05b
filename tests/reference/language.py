#!/usr/bin/env python3
"""Trains a tiny GPT and a tiny Llama of Keras Hub's layers on JAX for 100 steps, and writes every loss and the final
weights to tests/golden/parity/gpt_tiny.json and llama_tiny.json. README.md states the fields. Needs keras-hub.

  KERAS_BACKEND=jax python language.py
"""
import json
import re
from importlib.metadata import version

import keras
import keras_hub
import numpy as np
from keras_hub.src.models.llama.llama_decoder import LlamaTransformerDecoder
from keras_hub.src.models.llama.llama_layernorm import LlamaLayerNorm

import parity
import splitmix

VOCABULARY, STEPS_OF_A_SAMPLE, WIDTH, DEPTH = 13, 8, 16, 2
SAMPLES, BATCH = 64, 8
SEED_OF_TOKENS, SEED_OF_WEIGHTS = 501, 600


def table():
    return keras_hub.layers.ReversibleEmbedding(VOCABULARY, WIDTH, name="token_embedding")


def gpt(tokens):
    embedding = table()
    x = embedding(tokens)
    x = x + keras_hub.layers.PositionEmbedding(STEPS_OF_A_SAMPLE, name="position_embedding")(x)
    for i in range(DEPTH):
        x = keras_hub.layers.TransformerDecoder(
            intermediate_dim=32, num_heads=2, activation="gelu", normalize_first=True, name=f"transformer_layer_{i}")(x)
    x = keras.layers.LayerNormalization(epsilon=1e-5, name="layer_norm")(x)
    return embedding(x, reverse=True)


def llama(tokens):
    x = keras.layers.Embedding(VOCABULARY, WIDTH, name="token_embedding")(tokens)
    for i in range(DEPTH):
        x = LlamaTransformerDecoder(
            intermediate_dim=24, num_query_heads=4, num_key_value_heads=2, rope_max_wavelength=10000, activation="silu",
            layer_norm_epsilon=1e-5, name=f"transformer_layer_{i}")(x)
    x = LlamaLayerNorm(epsilon=1e-5, name="layer_norm")(x)
    return keras.layers.Dense(VOCABULARY, use_bias=False, name="logits")(x)


def gpt_optimizer():
    rate = keras.optimizers.schedules.CosineDecay(0.0, 90, alpha=0.1, warmup_target=0.01, warmup_steps=10)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.1, beta_2=0.95, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "position"])
    return optimizer


CASES = {
    "gpt_tiny": (gpt, gpt_optimizer),
    "llama_tiny": (llama, lambda: keras.optimizers.Adam(0.002, beta_2=0.95, global_clipnorm=1.0)),
}


def path_of(variable):
    """Of this program's names: a Hub layer within another has a path of its own."""
    return re.sub(r"^(functional|model)(_\d+)?/", "", variable.path)


def initial_weight(variable, seed):
    name = variable.path.rsplit("/", 1)[1]
    shape = list(variable.shape)
    if name in ("gamma", "scale"):
        return {"shape": shape, "ones": True}
    if name in ("beta", "bias"):
        return {"shape": shape, "zeros": True}
    return {"shape": shape, "seed": seed, "scale": 0.25}


def value_of(spec):
    if "seed" in spec:
        return splitmix.signed(spec["seed"], spec["shape"], spec["scale"])
    return (np.ones if "ones" in spec else np.zeros)(spec["shape"], np.float32)


def record(name):
    keras.backend.clear_session()
    make, optimizer = CASES[name]
    inputs = keras.Input((STEPS_OF_A_SAMPLE,), dtype="int32", name="token_ids")
    model = keras.Model(inputs, make(inputs))
    model.compile(optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    weights = {}
    for i, variable in enumerate(model.weights):
        weights[path_of(variable)] = initial_weight(variable, SEED_OF_WEIGHTS + i)
        variable.assign(value_of(weights[path_of(variable)]))
    assert len(weights) == len(model.weights), [v.path for v in model.weights]

    tokens = splitmix.below(SEED_OF_TOKENS, VOCABULARY, (SAMPLES, STEPS_OF_A_SAMPLE + 1)).astype(np.int32)
    losses = []
    for step in range(parity.STEPS):
        begin = step * BATCH % SAMPLES
        batch = tokens[begin:begin + BATCH]
        model.reset_metrics()
        losses.append(float(model.train_on_batch(batch[:, :-1], batch[:, 1:])))
    golden = {
        "case": name,
        "made_with": {"keras": keras.__version__, "keras_hub": keras_hub.__version__, "jax": version("jax")},
        "steps": parity.STEPS, "sample_stride": parity.SAMPLE_STRIDE, "samples": SAMPLES, "batch_size": BATCH,
        "data": {"tokens": f"below(seed {SEED_OF_TOKENS}, {VOCABULARY}), shape ({SAMPLES}, {STEPS_OF_A_SAMPLE + 1})"},
        "initial_weights": weights,
        "float32": {
            "losses": [parity.number(v, "float32") for v in losses],
            # Biases of keys change no softmax: their gradients are nothing but rounding, which Adam makes large.
            "final_weights": {path_of(v): parity.summary(np.asarray(v.value), "float32") for v in model.weights
                              if not path_of(v).endswith("key/bias")},
        },
    }
    print(name, "loss", losses[0], "->", losses[-1], flush=True)
    text = json.dumps(golden, indent=1)
    text = re.sub(r"\[\s*([^\[\]{}]*?)\s*\]", lambda m: "[" + parity.fold(m.group(1)) + "]", text)
    (parity.GOLDEN / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    for case in CASES:
        record(case)
