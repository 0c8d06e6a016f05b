#!/usr/bin/env python3
"""Tiny models of Keras Hub with random weights, and what they compute, for test_hub.

  KERAS_BACKEND=jax python3 hub.py                      writes ../golden/keras/hub
  KERAS_BACKEND=jax python3 hub.py --meshtrain PROGRAM  checks import and prediction, also of presets

NAME.keras is model.save(), packed to be small; NAME.npz has the inputs under their names, and the outputs as `y0`,
`y1`, ... in the order of their names. NAME.zip is a preset, save_to_preset(). `--meshtrain` makes all of them again,
imports each file and preset, wants predictions on 1 x 1 and 2 x 4 devices within 1e-5 of the largest value, and Keras'
weight file read into the imported model.
"""
import argparse
import pathlib
import subprocess
import tempfile
import zipfile

import keras
import keras_hub
import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "keras" / "hub"
STEPS, BATCH, TOKENS, LIMIT = 7, 4, 20, 1e-5
HUB = keras_hub.models
BLOCKS = dict(vocabulary_size=TOKENS, num_layers=2, num_heads=4, hidden_dim=16, intermediate_dim=12,
              max_sequence_length=12)
LLAMA = dict(vocabulary_size=TOKENS, num_layers=2, num_query_heads=4, num_key_value_heads=2, hidden_dim=16,
             intermediate_dim=12)
ROPE = dict(rope_max_wavelength=500, rope_frequency_adjustment_factor=4.0, rope_low_freq_factor=1.0,
            rope_high_freq_factor=4.0, rope_pretraining_sequence_length=8)
VIT = dict(image_shape=(8, 12, 3), patch_size=4, num_layers=2, num_heads=4, hidden_dim=16, mlp_dim=12)


def functional(model):
    return keras.Model(model.inputs, model.outputs)


def gpt2_preprocessor():
    tokens = ["<|endoftext|>", "a", "Ġ", "q", "u", "i", "c", "k", "f", "o", "x", "Ġq", "ui", "ck", "uick", "Ġquick",
              "Ġf", "ox", "Ġfox", "."]
    merges = ["Ġ q", "u i", "c k", "ui ck", "Ġq uick", "Ġ f", "o x", "Ġf ox"]
    tokenizer = HUB.GPT2Tokenizer(vocabulary={token: i for i, token in enumerate(tokens)}, merges=merges)
    return HUB.GPT2CausalLMPreprocessor(tokenizer=tokenizer, sequence_length=8)


def bert_preprocessor():
    tokenizer = HUB.BertTokenizer(vocabulary=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "qu", "##ick", "fox",
                                              "."], lowercase=True)
    return HUB.BertTextClassifierPreprocessor(tokenizer, sequence_length=8)


MODELS = {
    "gpt2": lambda: HUB.GPT2CausalLM(HUB.GPT2Backbone(**BLOCKS)),
    "gpt2_backbone": lambda: HUB.GPT2Backbone(**BLOCKS, dropout=0),
    "gpt2_functional": lambda: functional(HUB.GPT2Backbone(**BLOCKS)),
    "llama": lambda: HUB.LlamaCausalLM(HUB.LlamaBackbone(**LLAMA)),
    "llama_backbone": lambda: HUB.LlamaBackbone(**LLAMA),
    "llama_tied": lambda: HUB.LlamaCausalLM(HUB.LlamaBackbone(**LLAMA, tie_word_embeddings=True)),
    "llama3": lambda: HUB.Llama3CausalLM(HUB.Llama3Backbone(**LLAMA, **ROPE)),
    "mistral": lambda: HUB.MistralCausalLM(HUB.MistralBackbone(**LLAMA, sliding_window=3, head_dim=6, rope_scaling_factor=2.0)),
    "bert": lambda: HUB.BertBackbone(**BLOCKS),
    "bert_classifier": lambda: HUB.BertTextClassifier(HUB.BertBackbone(**BLOCKS), 3, activation="softmax"),
    "bert_functional": lambda: functional(HUB.BertBackbone(**BLOCKS)),
    "roberta": lambda: functional(HUB.RobertaBackbone(**BLOCKS)),
    "distil_bert": lambda: functional(HUB.DistilBertBackbone(**BLOCKS)),
    "albert": lambda: functional(HUB.AlbertBackbone(**BLOCKS, embedding_dim=4)),
    "opt": lambda: functional(HUB.OPTBackbone(**BLOCKS)),
    "bart": lambda: functional(HUB.BartBackbone(**BLOCKS)),
    "bert_masked": lambda: HUB.BertMaskedLM(HUB.BertBackbone(**BLOCKS)),
    "vit": lambda: HUB.ViTBackbone(**VIT),
    "vit_classifier": lambda: HUB.ViTImageClassifier(HUB.ViTBackbone(**VIT), 3, intermediate_dim=16),
    "vit_mean": lambda: HUB.ViTImageClassifier(HUB.ViTBackbone(**VIT), 3, pooling="gap"),
}
PRESETS = {
    "preset_gpt2": lambda: HUB.GPT2CausalLM(HUB.GPT2Backbone(**BLOCKS), gpt2_preprocessor()),
    "preset_bert": lambda: HUB.BertTextClassifier(HUB.BertBackbone(**BLOCKS), 3, bert_preprocessor()),
}


def fill(model, seed):
    random = np.random.default_rng(seed)
    for variable in model.weights:
        is_scale = variable.path.endswith(("gamma", "scale"))
        if "seed" not in variable.path:
            variable.assign((1 if is_scale else 0) + 0.3 * random.standard_normal(variable.shape))


def inputs_of(model):
    random = np.random.default_rng(3)
    out = {}
    for tensor in model.inputs:
        shape = (BATCH, *[STEPS if size is None else size for size in tensor.shape[1:]])
        if tensor.name == "images":
            out[tensor.name] = random.standard_normal(shape).astype(np.float32)
        elif tensor.name.endswith("padding_mask"):
            out[tensor.name] = (np.arange(STEPS) < np.array([[STEPS], [5], [6], [STEPS]])).astype(np.int32)
        else:
            most = {"segment_ids": 2, "mask_positions": STEPS}.get(tensor.name, TOKENS)
            out[tensor.name] = random.integers(0, most, shape).astype(np.int32)
    return out


def outputs_of(model, inputs):
    outputs = model(inputs if isinstance(model.input, dict) else [inputs[tensor.name] for tensor in model.inputs])
    if isinstance(outputs, dict):
        outputs = [outputs[name] for name in sorted(outputs)]
    return [np.asarray(y) for y in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


def pack(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


def packed(path):
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    pack(path, members)


def write_model(name, make, folder):
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    model = make()
    fill(model, len(name))
    inputs = inputs_of(model)
    if name in PRESETS:
        model.save_to_preset(str(folder / name))
        files = sorted(path for path in (folder / name).rglob("*") if path.is_file())
        pack(folder / f"{name}.zip", [(str(path.relative_to(folder / name)), path.read_bytes()) for path in files])
    else:
        model.save(folder / f"{name}.keras")
        packed(folder / f"{name}.keras")
    outputs = outputs_of(model, inputs)
    np.savez(folder / f"{name}.npz", **inputs, **{f"y{i}": y for i, y in enumerate(outputs)})
    return model, inputs, outputs


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def distance(program, config, inputs, outputs, folder, *more):
    np.savez(folder / "x.npz", **inputs)
    run(program, "predict", config, "-i", folder / "x.npz", "-o", folder / "y.npz", "fit.batch_size=4", *more)
    with np.load(folder / "y.npz") as given:
        names = sorted(given.files) if "pooled_output" in given.files else given.files
        ours = [given[name] for name in names]
    assert len(ours) == len(outputs), (len(ours), len(outputs))
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, outputs))


def check(program, name, make, folder):
    model, inputs, outputs = write_model(name, make, folder)
    source = folder / name if name in PRESETS else folder / f"{name}.keras"
    shapes = [] if "images" in inputs else [f"--shape={tensor}={STEPS}" for tensor in inputs]
    run(program, "import", source, "-o", folder / f"{name}_out", "--quiet", *shapes)
    config = folder / f"{name}_out/config.yaml"
    meshes = {"1x1": ["--devices", "cpu:1"],
              "2x4": ["--devices", "cpu:8", "distribution.type=ModelParallel", "distribution.layout_map=megatron",
                      "distribution.device_mesh={shape: [2, 4], axis_names: [data, model]}"]}
    found = {mesh: distance(program, config, inputs, outputs, folder, *more) for mesh, more in meshes.items()}
    model.save_weights(folder / f"{name}.weights.h5")
    found["weights"] = distance(program, config, inputs, outputs, folder, "fit.initial_weights=null", "--weights",
                                folder / f"{name}.weights.h5")
    if "vocabulary:" in config.read_text():
        run(program, "generate", config, "--prompt", "a quick", "--max-new-tokens", "2")
    print(f"{name:16}", {key: f"{value:.1e}" for key, value in found.items()}, flush=True)
    return max(found.values()) <= LIMIT


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meshtrain", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    models = {name: make for name, make in (MODELS | PRESETS).items() if not options.names or name in options.names}
    if options.meshtrain is None:
        GOLDEN.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            for name, make in models.items():
                write_model(name, make, pathlib.Path(folder))
                for end in (".keras", ".zip", ".npz"):
                    made = pathlib.Path(folder) / f"{name}{end}"
                    if made.exists():
                        (GOLDEN / made.name).write_bytes(made.read_bytes())
        return
    with tempfile.TemporaryDirectory() as folder:
        good = [check(options.meshtrain, name, make, pathlib.Path(folder)) for name, make in models.items()]
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
