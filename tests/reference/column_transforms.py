#!/usr/bin/env python3
"""Writes what Keras' preprocessing layers make of columns of texts and numbers to
tests/golden/keras/column_transforms.json: the adapted tables, and the outputs.

  KERAS_BACKEND=tensorflow python3 column_transforms.py     in an environment with tensorflow-cpu 2.21
"""
import json
import pathlib

import keras
import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "keras" / "column_transforms.json"

TEXTS = ["The cat sat on the mat.", "A cat, a DOG; a bird!", "", "the  dog\tand the\ncat", "Stra\u00dfe \u00c4 e\u0301 \u6f22\u5b57",
         "don't stop-me now", "[UNK] cat", "mat mat mat mat bird"]
OTHER = ["a zebra sat", "the The THE", "", "cat", "dog and bird and cat and dog and bird and mat"]
CITIES = ["Rome", "Bonn", "Oslo", "Bonn", "Rome", "Bonn", "[UNK]", "", "Oslo", "Lima"]
OTHER_CITIES = ["Bonn", "Paris", "", "Lima", "Rome", "Kyiv"]
NUMBERS = [3, -7, 3, 12, 0, 12, 3, -1, 40, -7, 5]
OTHER_NUMBERS = [12, 99, -8, 0, 3, -1, 1000000007]
rng = np.random.default_rng(0)
VALUES = [float(np.float32(x)) for x in np.concatenate([rng.normal(0, 2, 40), rng.exponential(3, 25)])]
OTHER_VALUES = [-100.0, -1.5, 0.0, 0.25, 1.0, 3.5, 1e6]
LONG = ["", "a", "ab", "abcd", "abcdefgh", "0123456789abcdef", "0123456789abcdef0", "x" * 31, "y" * 32, "z" * 33, "w" * 64,
        "v" * 65, "u" * 200, "Stra\u00dfe", "42", "-7"]


def cases():
    text = [
        {"output_sequence_length": 6},
        {"output_sequence_length": 3, "max_tokens": 6},
        {"standardize": "lower", "output_sequence_length": 5},
        {"standardize": "strip_punctuation", "split": "character", "output_sequence_length": 8},
        {"standardize": None, "split": None, "output_sequence_length": 1},
        {"ngrams": 2, "output_sequence_length": 9},
        {"ngrams": [1, 3], "output_mode": "count"},
        {"output_mode": "multi_hot"},
        {"output_mode": "multi_hot", "max_tokens": 40, "pad_to_max_tokens": True},
        {"output_mode": "count", "max_tokens": 5},
        {"output_mode": "tf_idf"},
        {"output_mode": "tf_idf", "max_tokens": 7},
        {"vocabulary": ["cat", "mat", "the"], "output_sequence_length": 4},
        {"vocabulary": ["cat", "mat", "the"], "output_mode": "tf_idf", "idf_weights": [0.5, 0.25, 2.0]},
    ]
    lookup = [{}, {"max_tokens": 3}, {"mask_token": ""}, {"mask_token": "", "num_oov_indices": 3}, {"num_oov_indices": 4},
              {"output_mode": "one_hot"}, {"output_mode": "multi_hot", "mask_token": ""}, {"output_mode": "count", "num_oov_indices": 2},
              {"output_mode": "tf_idf"}, {"vocabulary": ["Oslo", "Rome"]}]
    integers = [{}, {"mask_token": 0}, {"num_oov_indices": 3}, {"max_tokens": 3}, {"vocabulary": [12, 3, -7], "num_oov_indices": 2},
                {"output_mode": "one_hot", "mask_token": 3}, {"output_mode": "count"}]
    bins = [{"num_bins": 4}, {"num_bins": 7, "epsilon": 0.1}, {"num_bins": 90}, {"bin_boundaries": [-1.5, 0.25, 3.5]},
            {"num_bins": 3, "output_mode": "one_hot"}, {"bin_boundaries": [0.0], "output_mode": "count"}]
    hashes = [{"num_bins": 3}, {"num_bins": 1000003}, {"num_bins": 97, "mask_value": ""}, {"num_bins": 1000003, "salt": 133},
              {"num_bins": 1000003, "salt": [133, 137]}, {"num_bins": 5, "output_mode": "one_hot"}]
    yield from (("TextVectorization", c, TEXTS, OTHER) for c in text)
    yield from (("StringLookup", c, CITIES, OTHER_CITIES) for c in lookup)
    yield from (("IntegerLookup", c, NUMBERS, OTHER_NUMBERS) for c in integers)
    yield from (("Discretization", c, VALUES, OTHER_VALUES) for c in bins)
    yield from (("Hashing", c, [], LONG) for c in hashes)
    yield from (("HashedCrossing", c, [], list(zip(LONG, LONG[::-1]))) for c in ({"num_bins": 1000003}, {"num_bins": 4, "output_mode": "one_hot"}))
    yield from (("CategoryEncoding", c, [], [0, 3, 1, 3]) for c in ({"num_tokens": 4}, {"num_tokens": 5, "output_mode": "count"}))


def learned(layer, config):
    if "vocabulary" in config or not hasattr(layer, "get_vocabulary"):
        return {"boundaries": layer.bin_boundaries} if hasattr(layer, "bin_boundaries") else {}
    return {"vocabulary": [str(token) for token in layer.get_vocabulary(include_special_tokens=False)]}


def column(values):
    """A column as the layers take it: one value in each row."""
    array = np.asarray(values)
    return array.astype(object)[:, None] if array.dtype.kind == "U" else array[:, None]


def compute(class_name, config, train, values):
    given = {key: tuple(value) if key == "ngrams" and isinstance(value, list) else value for key, value in config.items()}
    layer = getattr(keras.layers, class_name)(**given)
    if train and not {"vocabulary", "bin_boundaries"} & set(config):
        layer.adapt(column(train))
    if class_name == "HashedCrossing":
        out = layer(tuple(column([pair[i] for pair in values]) for i in (0, 1)))
    else:
        out = layer(column(values))
    out = np.asarray(out, np.float64).reshape(len(values), -1)
    return {"class_name": class_name, "config": config, "train": train, "values": values, **learned(layer, config),
            "output": [[float(f"{x:.8g}") for x in row] for row in out.tolist()]}


if __name__ == "__main__":
    entries = [compute(*case) for case in cases()]
    lines = ",\n".join(json.dumps(entry, ensure_ascii=True, separators=(",", ":")) for entry in entries)
    GOLDEN.write_text(f'{{"keras": "{keras.__version__}",\n"cases": [\n{lines}\n]}}\n')
    print(len(entries), "cases,", GOLDEN.stat().st_size, "bytes")
