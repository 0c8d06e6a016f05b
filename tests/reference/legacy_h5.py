#!/usr/bin/env python3
"""Writes a whole model and its weights as HDF5 files of the kind before .keras, with what the model predicts.

  KERAS_BACKEND=jax python3 legacy_h5.py [FOLDER]     default: ../golden/keras/io

legacy.h5 is model.save("legacy.h5"): attributes have the model and its training, groups the weights by their paths.
legacy_weights.h5 has the weights alone, as model.save_weights("legacy_weights.h5") of Keras 2 wrote them: names end in
":0", cells have the numbers of another session. legacy.npz is as of io.py.
"""
import pathlib
import sys

import h5py
import keras
import numpy as np
from keras.src.legacy.saving import legacy_h5_format

import io_models

L = keras.layers


def legacy():
    """Layers in layers, two weights of one name in a layer, a model in the model."""
    x = keras.Input((6, 4), name="x")
    y = L.Bidirectional(L.LSTM(3, return_sequences=True), name="both")(x)
    y = L.MultiHeadAttention(2, 3, use_bias=False, name="attention")(y, y)
    y = L.BatchNormalization(name="norm")(y)
    inner = keras.Sequential([keras.Input((6, 6)), L.Flatten(), L.Dense(5, activation="tanh", name="within")], name="inner")
    model = keras.Model(x, L.Dense(3, activation="softmax", name="head")(inner(y)), name="legacy")
    model.compile(keras.optimizers.Adam(0.002), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def write_weights(path, model):
    """In the layout of Keras 2: save_weights() of Keras 3 writes another one."""
    with h5py.File(path, "w") as file:
        legacy_h5_format.save_attributes_to_hdf5_group(file, "layer_names", [each.name.encode() for each in model.layers])
        file.attrs["backend"], file.attrs["keras_version"] = b"tensorflow", b"2.15.0"
        for layer in model.layers:
            group = file.create_group(layer.name)
            names = [f"{weight.path}:0".replace("_cell/", "_cell_7/") for weight in layer.weights if "seed" not in weight.path]
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, weight in zip(names, [each for each in layer.weights if "seed" not in each.path], strict=True):
                group.create_dataset(name, data=np.asarray(weight.value))


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "golden/keras/io"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else folder
    folder.mkdir(parents=True, exist_ok=True)
    model = legacy()
    io_models.fill(model, 0)
    inputs = io_models.samples(model, 0)
    outputs = io_models.predictions(model, inputs)
    model.save(folder / "legacy.h5")
    write_weights(folder / "legacy_weights.h5", model)
    np.savez(folder / "legacy.npz", x=next(iter(inputs.values())), y0=next(iter(outputs.values())))
    for name in ("legacy.h5", "legacy_weights.h5", "legacy.npz"):
        print(name, (folder / name).stat().st_size)


if __name__ == "__main__":
    main()
