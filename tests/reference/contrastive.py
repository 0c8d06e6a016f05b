#!/usr/bin/env python3
"""Continues prompts with Keras Hub's ContrastiveSampler and the GPT of language.py, with 24 positions, and writes the
ids to tests/golden/keras/contrastive.json. Needs keras-hub.

  KERAS_BACKEND=jax python contrastive.py
"""
import json
from importlib.metadata import version

import keras
import keras_hub
import numpy as np

import language
import splitmix

STEPS, SEED_OF_WEIGHTS, SCALE = 24, 700, 1.0
PROMPTS = [[3], [1, 5, 2, 6], [12, 0, 0, 7, 7, 7, 4], list(range(13))]
CASES = [(5, 0.6, 1.0), (3, 0.2, 1.0), (4, 0.9, 0.5), (13, 0.5, 2.0), (1, 0.6, 1.0)]


def model_with_states():
    """Logits, and what the last product reads."""
    language.STEPS_OF_A_SAMPLE = STEPS
    inputs = keras.Input((STEPS,), dtype="int32", name="token_ids")
    model = keras.Model(inputs, language.gpt(inputs))
    for i, variable in enumerate(model.weights):
        name = variable.path.rsplit("/", 1)[1]
        value = np.ones if name == "gamma" else np.zeros
        variable.assign(value(variable.shape, np.float32) if name in ("gamma", "beta", "bias") else
                        splitmix.signed(SEED_OF_WEIGHTS + i, variable.shape, SCALE))
    return keras.Model(inputs, [model.output, model.get_layer("layer_norm").output])


def continued(model, prompt, k, alpha, temperature):
    sampler = keras_hub.samplers.ContrastiveSampler(k=k, alpha=alpha, temperature=temperature)
    ids = np.zeros((1, STEPS), np.int32)
    ids[0, :len(prompt)] = prompt
    mask = np.arange(STEPS)[None] < len(prompt)

    def following(prompt, cache, index):
        logits, states = model(prompt)
        return logits[:, index - 1], states[:, index - 1], cache

    text = sampler(next=following, prompt=keras.ops.convert_to_tensor(ids), index=len(prompt),
                   mask=keras.ops.convert_to_tensor(mask), hidden_states=model(ids)[1])
    return np.asarray(text)[0, len(prompt):].tolist()


def main():
    model = model_with_states()
    cases = [{"k": k, "alpha": alpha, "temperature": temperature, "prompt": prompt,
              "ids": continued(model, prompt, k, alpha, temperature)}
             for k, alpha, temperature in CASES for prompt in PROMPTS]
    golden = {"made_with": {"keras": keras.__version__, "keras_hub": keras_hub.__version__, "jax": version("jax")},
              "seed_of_weights": SEED_OF_WEIGHTS, "scale": SCALE}
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    text = json.dumps(golden)[:-1] + f', "cases": [\n  {lines}\n]}}\n'
    (language.parity.GOLDEN.parent / "keras" / "contrastive.json").write_text(text)


if __name__ == "__main__":
    main()
