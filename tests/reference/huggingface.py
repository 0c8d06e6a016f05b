#!/usr/bin/env python3
"""Tiny models of Hugging Face's transformers with random weights, and what they compute, for test_huggingface.

  python huggingface.py                           writes tests/golden/huggingface
  python huggingface.py --meshtrain build/release/app/meshtrain   checks import, prediction, export

The check imports each model with `meshtrain import`, compares predictions within 1e-5, exports it with `meshtrain export
--format hf`, wants every tensor back bit for bit, and lets transformers load and run the exported folder. Needs
torch, transformers and safetensors, on the CPU.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch
import transformers as hf
from safetensors import safe_open
from safetensors.numpy import save_file

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "huggingface"
STEPS, BATCH, WIDTH = 7, 2, 32
LLAMA = dict(vocab_size=40, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=16)
ENCODER = dict(hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
BERT = dict(vocab_size=40, max_position_embeddings=12, **ENCODER)
GPT2 = dict(vocab_size=40, n_positions=12, n_embd=WIDTH, n_layer=2, n_head=4, n_inner=48, bos_token_id=0,
            eos_token_id=0)
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8}

# name: (class, config, arguments of save_pretrained, dtype)
MODELS = {
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(**GPT2), {}, torch.float32),
    "gpt2_base": (hf.GPT2Model, hf.GPT2Config(**GPT2 | {"activation_function": "relu"}), {}, torch.float32),
    "llama2": (hf.LlamaForCausalLM, hf.LlamaConfig(**LLAMA), {}, torch.float32),
    "llama_linear": (hf.LlamaForCausalLM, hf.LlamaConfig(
        **LLAMA, head_dim=6, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}), {}, torch.float32),
    "llama31": (hf.LlamaForCausalLM, hf.LlamaConfig(**LLAMA, rope_parameters=LLAMA3_ROPE),
                {"max_shard_size": "20KB"}, torch.bfloat16),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig(
        **LLAMA | {"hidden_size": 16, "intermediate_size": 24}, head_dim=6, sliding_window=3), {}, torch.float32),
    "bert": (hf.BertModel, hf.BertConfig(**BERT), {}, torch.float32),
    "bert_classifier": (hf.BertForSequenceClassification, hf.BertConfig(**BERT, num_labels=3, hidden_act="gelu_new"),
                        {}, torch.float32),
    "bert_masked": (hf.BertForMaskedLM, hf.BertConfig(**BERT, hidden_act="relu"), {}, torch.float32),
    "vit": (hf.ViTForImageClassification, hf.ViTConfig(
        **ENCODER, image_size=12, patch_size=4, num_channels=3, num_labels=5), {}, torch.float32),
}


def build(name):
    cls, config, _, dtype = MODELS[name]
    torch.manual_seed(len(name))
    config._attn_implementation = "eager"
    model = cls(config)
    with torch.no_grad():
        for path, value in model.named_parameters():
            is_norm = "norm" in path.lower() or ".ln_" in path
            if value.dim() == 1:
                value.copy_((1 if is_norm and path.endswith("weight") else 0) + 0.2 * torch.randn_like(value))
            else:
                value.copy_(0.25 * torch.randn_like(value))
    return model.to(dtype).eval()


def inputs_of(name):
    random = np.random.default_rng(3)
    if name == "vit":
        return {"images": random.standard_normal((BATCH, 12, 12, 3)).astype(np.float32)}
    ids = {"token_ids": random.integers(0, 40, (BATCH, STEPS)).astype(np.int32)}
    if name.startswith("bert"):
        ids["segment_ids"] = random.integers(0, 2, (BATCH, STEPS)).astype(np.int32)
        ids["padding_mask"] = np.array([[1] * STEPS, [1] * 4 + [0] * (STEPS - 4)], np.int32)
    if name == "bert_masked":
        ids["mask_positions"] = np.tile(np.arange(STEPS, dtype=np.int32)[::-1], (BATCH, 1))
    return ids


def run(name, model):
    """What the model computes in float32, the outputs of ours in their order."""
    given = {k: torch.tensor(v) for k, v in inputs_of(name).items()}
    with torch.no_grad():
        if name == "vit":
            out = model.float()(pixel_values=given["images"].permute(0, 3, 1, 2))
        else:
            theirs = {"token_ids": "input_ids", "segment_ids": "token_type_ids", "padding_mask": "attention_mask"}
            out = model.float()(**{theirs[k]: v.long() for k, v in given.items() if k in theirs})
    if name == "bert_masked":
        return [out.logits.numpy()[:, ::-1]]
    results = [out.logits] if hasattr(out, "logits") else [out.last_hidden_state]
    if getattr(out, "pooler_output", None) is not None:
        results.append(out.pooler_output)
    return [each.numpy() for each in results]


def tensors(folder):
    """{name: (dtype, shape, bytes)} of all safetensors files of a folder."""
    out = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        if path.name == "expected.safetensors":
            continue
        with safe_open(path, "pt") as file:
            for key in file.keys():
                value = file.get_tensor(key)
                out[key] = (str(value.dtype), tuple(value.shape), value.contiguous().view(torch.uint8).numpy().tobytes())
    return out


def make():
    for name, (cls, _, options, _) in MODELS.items():
        folder = GOLDEN / name
        build(name).save_pretrained(folder, **options)
        model = cls.from_pretrained(folder, attn_implementation="eager")  # its buffers have float32
        (folder / "generation_config.json").unlink(missing_ok=True)
        expected = {f"input_{k}": v for k, v in inputs_of(name).items()}
        for i, value in enumerate(run(name, model)):
            expected[f"output_{i}"] = np.ascontiguousarray(value)
        save_file(expected, folder / "expected.safetensors")
        print(name, sum(p.stat().st_size for p in folder.iterdir()), "bytes")


def call(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def check(program):
    for name, (cls, _, _, _) in MODELS.items():
        with tempfile.TemporaryDirectory() as temporary:
            out, back = pathlib.Path(temporary, "in"), pathlib.Path(temporary, "back")
            call(program, "import", GOLDEN / name, "-o", out, "-q")
            words = [] if name == "vit" else [f"vars.context={STEPS}"]
            inputs = inputs_of(name)
            np.savez(out / "x.npz", **inputs)
            y = out / "y.npz"
            call(program, "predict", out / "config.yaml", *words, "-i", out / "x.npz", "-o", y, "-q")
            found = [np.load(y)[key] for key in np.load(y).files]
            wanted = run(name, cls.from_pretrained(GOLDEN / name, attn_implementation="eager"))
            worst = max(np.abs(a - b).max() for a, b in zip(found, wanted, strict=True))
            assert worst <= 1e-5, (name, worst)
            call(program, "export", out / "config.yaml", "--format", "hf", "-o", back, "-q",
                 *(["--shard-size", "20 kB"] if name == "llama31" else []))
            given, returned = tensors(GOLDEN / name), tensors(back)
            assert given == returned, (name, set(given) ^ set(returned))
            model = cls.from_pretrained(back, attn_implementation="eager")
            again = run(name, model)
            assert all((a == b).all() for a, b in zip(again, wanted, strict=True)), name
            print(f"{name}: predictions within {worst:.1e}, {len(given)} tensors bit for bit, loaded by transformers "
                  f"{hf.__version__}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshtrain", help="the program to check")
    given = parser.parse_args()
    check(given.meshtrain) if given.meshtrain else make()
