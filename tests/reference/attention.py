#!/usr/bin/env python3
"""Writes what Keras 3 on JAX and Keras Hub compute for layers of attention and positions, with gradients, to
tests/golden/keras/layers_attention.json. README.md states the fields. Needs keras-hub.

  KERAS_BACKEND=jax python attention.py

Where dropout is zero, Keras computes attention with a softmax in float32 whatever the policy; a rate too small to
matter takes the path that keeps float64. Masks leave each row a key: Keras' rows without one are
means, ours zeros.
"""
import float64  # before JAX

import json

import jax
import jax.numpy as jnp
import keras
import keras_hub
import numpy as np
from keras_hub.src.models.vit import vit_layers

import layers
import splitmix

ALMOST_NONE = {"dropout": 1e-12}
PROJECTED = ("MultiHeadAttention", "GroupQueryAttention")
SCORED = ("Attention", "AdditiveAttention")
Q, K = [2, 4, 5], [2, 3, 5]


def case(class_name, inputs, config=None, **more):
    """more: roles (of the inputs), integers (a limit for each input, None for floats), call, policy, computed_in."""
    return {"class_name": class_name, "config": config or {}, "inputs": inputs, **more}


def with_scores(call=None):
    """A call whose outputs are the usual one and the scores."""
    return {"call": {**(call or {}), "return_attention_scores": True}, "outputs": ["", "attention_scores"]}


def multi_head():
    small = {"num_heads": 2, "key_dim": 3, **ALMOST_NONE}
    causal = {"use_causal_mask": True}
    name = "MultiHeadAttention"
    return [
        case(name, [Q, K], small, roles=["query", "value"]),
        case(name, [Q], small, roles=["query"], call=causal),
        case(name, [Q, K, [2, 3, 7]], {**small, "value_dim": 4, "use_bias": False}, roles=["query", "key", "value"]),
        case(name, [Q, K], {**small, "use_gate": True, "value_dim": 2}, roles=["query", "value"]),
        case(name, [Q], {**small, "sliding_window": 2}, roles=["query"], call=causal),
        case(name, [Q], {**small, "sliding_window": 2}, roles=["query"]),
        case(name, [Q, K], {**small, "output_shape": [2, 3]}, roles=["query", "value"]),
        case(name, [Q, K], {**small, "output_shape": 6}, roles=["query", "value"]),
        case(name, [Q, K], small, roles=["query", "value"], call=causal),
        case(name, [Q, K, [2, 3], [2, 3]], small, integers=[None, None, 4, 9],
             roles=["query", "value", "value_mask", "key_mask"]),
        case(name, [Q, K, [2, 4, 3]], small, integers=[None, None, 5], roles=["query", "value", "attention_mask"]),
        case(name, [Q, [2, 2, 4, 4]], small, integers=[None, 4], roles=["query", "attention_mask"]),
        case(name, [Q, K, [2, 1, 3]], small, integers=[None, None, 5], roles=["query", "value", "attention_mask"]),
        case(name, [Q, K, [2, 3], [2, 1, 1, 3]], small, integers=[None, None, 9, 2],
             roles=["query", "value", "value_mask", "attention_mask"]),
        case(name, [Q, [2, 2, 1, 4]], small, integers=[None, 3], roles=["query", "attention_mask"], **with_scores()),
        case(name, [[2, 3, 2, 5], [2, 4, 2, 5]], small, roles=["query", "value"]),
        case(name, [[2, 3, 2, 5], [2, 4, 2, 5]], {**small, "attention_axes": [1]}, roles=["query", "value"]),
        case(name, [[2, 3, 2, 5], [2, 3, 4, 5]], {**small, "attention_axes": [2]}, roles=["query", "value"]),
        case(name, [Q, K], {"num_heads": 2, "key_dim": 3}, roles=["query", "value"], policy="mixed_bfloat16"),
        case(name, [Q, K], small, roles=["query", "value"], **with_scores()),
        case(name, [Q], {**small, "sliding_window": 2}, roles=["query"], **with_scores(causal)),
        case(name, [Q, K, [2, 3], [2, 4, 3]], small, integers=[None, None, 9, 5],
             roles=["query", "value", "value_mask", "attention_mask"], **with_scores()),
        case(name, [[2, 3, 2, 5], [2, 4, 2, 5]], {**small, "attention_axes": [1]}, roles=["query", "value"],
             **with_scores()),
        case(name, [[2, 3, 2, 5], [2, 4, 3, 5]], small, roles=["query", "value"], **with_scores()),
    ]


def group_query():
    small = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2, **ALMOST_NONE}
    name = "GroupQueryAttention"
    return [
        case(name, [Q, K], small, roles=["query", "value"]),
        case(name, [Q], {**small, "use_bias": False}, roles=["query"], call={"use_causal_mask": True}),
        case(name, [Q, K], {**small, "num_key_value_heads": 1, "use_gate": True}, roles=["query", "value"]),
        case(name, [Q], {**small, "sliding_window": 2}, roles=["query"]),
        case(name, [Q, K, [2, 3]], small, integers=[None, None, 9], roles=["query", "value", "value_mask"]),
        case(name, [Q], small, roles=["query"], **with_scores({"use_causal_mask": True})),
    ]


def scored():
    out = []
    for config in ({}, {"use_scale": True}, {"score_mode": "concat"}, {"score_mode": "concat", "use_scale": True}):
        out.append(case("Attention", [Q, K], config, roles=["query", "value"]))
    out += [
        case("Attention", [Q, [2, 3, 6], K], {"use_scale": True}, roles=["query", "value", "key"]),
        case("Attention", [Q, Q], {}, roles=["query", "value"], call={"use_causal_mask": True}),
        case("Attention", [Q, Q], {"score_mode": "concat"}, roles=["query", "value"], call={"use_causal_mask": True}),
        case("Attention", [Q, K, [2, 4]], {}, integers=[None, None, 2], roles=["query", "value", "query_mask"]),
        case("Attention", [Q, [2, 3, 6], K], {"use_scale": True}, roles=["query", "value", "key"], **with_scores()),
        case("Attention", [Q, Q, [2, 4]], {}, integers=[None, None, 2], roles=["query", "value", "query_mask"],
             **with_scores({"use_causal_mask": True})),
        case("AdditiveAttention", [Q, K], {}, roles=["query", "value"]),
        case("AdditiveAttention", [Q, K], {}, roles=["query", "value"], **with_scores()),
        case("AdditiveAttention", [Q, [2, 3, 6], K], {"use_scale": False}, roles=["query", "value", "key"]),
    ]
    return out


def embeddings():
    in_single = {"computed_in": "float32"}  # angles
    table = {"input_dim": 7, "output_dim": 3}
    tokens = {"vocabulary_size": 7, "sequence_length": 6, "embedding_dim": 3}
    yarn = {"rope_type": "yarn", "scaling_factor": 4.0, "original_max_position_embeddings": 64}
    reverse = {"reverse": True}
    cases = [
        case("ReversibleEmbedding", [[2, 5]], table, integers=[7]),
        case("ReversibleEmbedding", [[2, 5, 3]], table, call=reverse),
        case("ReversibleEmbedding", [[2, 3]], {**table, "tie_weights": False, "logit_soft_cap": 1.5}, call=reverse),
        case("ReversibleEmbedding", [[2, 5]], {**table, "tie_weights": False}, integers=[7]),
        case("PositionEmbedding", [[2, 4, 3]], {"sequence_length": 6}),
        case("PositionEmbedding", [[2, 4, 3]], {"sequence_length": 6}, call={"start_index": 2}),
        case("PositionEmbedding", [[2, 4, 3], [2, 4]], {"sequence_length": 6}, integers=[None, 6],
             roles=["inputs", "positions"]),
        case("SinePositionEncoding", [[2, 4, 5]]),
        case("SinePositionEncoding", [[2, 4, 5]], {"max_wavelength": 100}, call={"start_index": 3}),
        case("TokenAndPositionEmbedding", [[2, 5]], tokens, integers=[7]),
        case("TokenAndPositionEmbedding", [[2, 5]], {**tokens, "tie_weights": False}, integers=[7],
             call={"start_index": 1}),
        case("RotaryEmbedding", [[2, 4, 2, 6]], **in_single),
        case("RotaryEmbedding", [[2, 4, 6]], {"max_wavelength": 100, "scaling_factor": 2.0}, call={"start_index": 3},
             **in_single),
        case("RotaryEmbedding", [[2, 4, 2, 6]], {"rope_type": "dynamic", "scaling_factor": 3.0}, **in_single),
        case("RotaryEmbedding", [[2, 4, 2, 8]], yarn, **in_single),
        case("RotaryEmbedding", [[2, 4, 2, 8]], {**yarn, "truncate": False, "beta_fast": 8.0}, **in_single),
        case("RotaryEmbedding", [[2, 2, 6, 4]], {"sequence_axis": 3, "feature_axis": 2}, **in_single),
        case("RotaryEmbedding", [[2, 4, 2, 6], [2, 4]], {"denominator_dim": 8}, integers=[None, 90],
             roles=["inputs", "positions"], **in_single),
    ]
    first = {}
    for each in cases:
        first.setdefault(each["class_name"], each)
    half = [{k: v for k, v in each.items() if k != "computed_in"} | {"policy": "mixed_bfloat16"}
            for name, each in first.items() if name not in ("PositionEmbedding", "RotaryEmbedding")]
    return cases + half


def blocks():
    small = {"intermediate_dim": 5, "num_heads": 2, **ALMOST_NONE}
    x, other = [2, 4, 6], [2, 3, 7]
    encoder, decoder = "TransformerEncoder", "TransformerDecoder"
    pair = ["decoder_sequence", "encoder_sequence"]
    cases = [
        case(encoder, [x], small),
        case(encoder, [x], {**small, "normalize_first": True, "activation": "gelu", "layer_norm_epsilon": 1e-3}),
        case(encoder, [[2, 4, 7]], {**small, "num_heads": 3}),
        case(encoder, [x, [2, 4], [2, 4, 4]], small, integers=[None, 9, 5],
             roles=["inputs", "padding_mask", "attention_mask"]),
        case(decoder, [x], small),
        case(decoder, [x], small, call={"use_causal_mask": False}),
        case(decoder, [x, other], {**small, "normalize_first": True}, roles=pair),
        case(decoder, [x, other], small, roles=pair),
        case(decoder, [x, other, [2, 3], [2, 4, 3]], small, integers=[None, None, 9, 9],
             roles=pair + ["encoder_padding_mask", "encoder_attention_mask"]),
    ]
    # Norms are computed in float32, whatever the policy.
    return [{**each, "computed_in": "float32"} for each in cases]


def heads():
    """Parts of ViT and BERT."""
    images = {"image_size": [6, 4], "patch_size": [3, 2], "hidden_dim": 5}
    patches, head = "ViTPatchingAndEmbedding", "MaskedLMHead"
    masked = {"inputs": [[2, 5, 4], [2, 3]], "integers": [None, 5], "roles": ["inputs", "mask_positions"]}
    return [
        case(patches, [[2, 6, 4, 3]], images),
        case(patches, [[2, 6, 4, 2]], {**images, "num_channels": 2, "use_class_token": False}),
        case(patches, [[2, 6, 4, 3]], {**images, "use_patch_bias": False}),
        # Norms are computed in float32, whatever the policy.
        case(head, config={"vocabulary_size": 7}, computed_in="float32", **masked),
        case(head, config={"vocabulary_size": 6, "intermediate_activation": "gelu", "activation": "softmax",
                           "layer_norm_epsilon": 1e-3}, computed_in="float32", **masked),
    ]


def inputs_of(case, dtype):
    arrays = []
    for i, shape in enumerate(case["inputs"]):
        limit = case.get("integers", [None] * (i + 1))[i]
        if limit is None:
            arrays.append(jnp.asarray(splitmix.signed(100 + i, shape, 2.0), dtype))
        else:
            arrays.append(jnp.asarray(splitmix.below(100 + i, limit, shape), jnp.int32))
    return arrays


def is_mask(role):
    return role.endswith("mask")


def call_layer(layer, case, arrays, stateless=None):
    call = stateless or (lambda *args, **kwargs: layer(*args, **kwargs))
    more = dict(case.get("call", {}))
    if "roles" not in case:
        return call(arrays[0], **more)
    roles = {role: array.astype(bool) if is_mask(role) else array for role, array in zip(case["roles"], arrays)}
    if case["class_name"] in SCORED:
        masks = [roles.get("query_mask"), roles.get("value_mask")]
        inputs = [roles[name] for name in ("query", "value", "key") if name in roles]
        return call(inputs, mask=masks if any(m is not None for m in masks) else None, **more)
    if case["class_name"] in PROJECTED:
        roles.setdefault("value", roles["query"])
        return call(roles.pop("query"), **roles, **more)
    first = case["roles"][0]
    return call(roles.pop(first), **roles, **more)


def compute(case):
    classes = next(c for c in (keras.layers, keras_hub.layers, vit_layers) if hasattr(c, case["class_name"]))
    half = "policy" in case
    layer = getattr(classes, case["class_name"])(**case["config"], dtype=case.get("policy", "float64"))
    arrays = inputs_of(case, jnp.float32 if half else jnp.float64)
    call_layer(layer, case, arrays)
    for index, variable in enumerate(layer.trainable_variables):
        variable.assign(layers.weight_value(index, variable))
    floats = [i for i in range(len(arrays)) if case.get("integers", [None] * len(arrays))[i] is None]
    state = [v.value for v in layer.non_trainable_variables]

    def call(trainable, given):
        every = list(arrays)
        for i, array in zip(floats, given):
            every[i] = array
        return call_layer(layer, case, every, lambda *a, **k: layer.stateless_call(trainable, state, *a, **k))[0]

    trainable = [v.value for v in layer.trainable_variables]
    y, pullback = jax.vjp(lambda *given: layers.joined(call(*given), case), trainable, [arrays[i] for i in floats])
    gradients = pullback(jnp.asarray(splitmix.signed(300, y.shape), y.dtype))
    names = [v.path.split("/", 1)[1] for v in layer.trainable_variables]
    entry = {**case, "weights": [{"name": n, "shape": list(v.shape)} for n, v in zip(names, trainable)],
             "output": layers.tensor(y),
             "weight_gradients": {n: layers.tensor(g) for n, g in zip(names, gradients[0])},
             "input_gradients": [layers.tensor(g) for g in gradients[1]]}
    if half:
        entry["output_dtype"] = str(y.dtype)
    return entry


def main():
    cases = multi_head() + group_query() + scored() + embeddings() + blocks() + heads()
    lines = []
    for each in cases:
        try:
            lines.append(json.dumps(compute(each), allow_nan=False, separators=(",", ":")))
        except Exception as error:
            raise RuntimeError(f"{each['class_name']} {each['config']}") from error
    made_with = json.dumps({"keras": keras.__version__, "keras_hub": keras_hub.__version__, "jax": jax.__version__})
    text = f'{{"made_with": {made_with},\n"cases": [\n' + ",\n".join(lines) + "\n]}\n"
    (layers.GOLDEN / "layers_attention.json").write_text(text)
    print(f"layers_attention: {len(lines)} cases, {len(text)} bytes")


if __name__ == "__main__":
    main()
