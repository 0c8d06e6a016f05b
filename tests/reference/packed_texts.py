#!/usr/bin/env python3
"""What Keras Hub packs texts to: tests/golden/tokenizers/packed.json.

usage: packed_texts.py    (after tokenizers_golden.py; needs keras-hub and tokenizers)

Each case has the ids of StartEndPacker, its padding mask, and x, y and sample_weight of a causal language model: the
same packed to one id more, as CausalLMPreprocessor.call has it.
"""
import json
import pathlib

import keras_hub
import numpy as np
from tokenizers import Tokenizer

OUT = pathlib.Path(__file__).parents[1] / "golden" / "tokenizers"
TEXTS = ["The King", "First Citizen: Before we proceed any further, hear me speak.", "a", "\u00e9t\u00e9 \U0001f600 no", "  two  spaces "]
CASES = [  # tokenizer, length, start, end, padding
    ("bert", 12, "[CLS]", "[SEP]", "[PAD]"), ("bert", 3, "[CLS]", "[SEP]", None), ("bert", 12, None, None, None),
    ("gpt2", 16, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"), ("gpt2", 7, None, "<|endoftext|>", None),
]


def pack(ids, length, start, end, padding):
    packer = keras_hub.layers.StartEndPacker(length, start_value=start, end_value=end, pad_value=padding or 0,
                                             return_padding_mask=True)
    values, mask = packer(ids)
    return np.asarray(values).tolist(), np.asarray(mask).astype(int).tolist()


def main():
    cases = []
    for name, length, *tokens in CASES:
        tokenizer = Tokenizer.from_file(str(OUT / name / "tokenizer.json"))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        special = [None if token is None else tokenizer.token_to_id(token) for token in tokens]
        token_ids, mask = pack(ids, length, *special)
        longer, longer_mask = pack(ids, length + 1, *special)
        cases.append({
            "tokenizer": name, "length": length, "start": tokens[0], "end": tokens[1], "padding": tokens[2],
            "token_ids": token_ids, "padding_mask": mask, "x": [row[:-1] for row in longer],
            "x_mask": [row[:-1] for row in longer_mask], "y": [row[1:] for row in longer],
            "weights": [row[1:] for row in longer_mask]})
    (OUT / "packed.json").write_text(json.dumps({"texts": TEXTS, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
