#!/usr/bin/env python3
"""Writes the models of io_models.py as Keras saves them, with what they predict.

  KERAS_BACKEND=jax python3 io.py [FOLDER]     default: ../golden/keras/io

NAME.keras is model.save(), NAME.json model.to_json(), NAME.weights.h5 model.save_weights() (the last
two for one model), NAME.npz the inputs under their names, with `y0`, `y1`, ... the outputs.
"""
import pathlib
import sys
import zipfile

import keras
import numpy as np

import io_models

WITH_JSON = {"mlp"}
AS_KERAS_WRITES = {"mlp", "convnet"}  # the others are packed, to be small


def packed(path):
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "golden/keras/io"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else folder
    folder.mkdir(parents=True, exist_ok=True)
    for seed, make in enumerate(io_models.MODELS):
        keras.utils.clear_session()
        name = make.__name__
        model = make()
        io_models.fill(model, seed)
        inputs = io_models.samples(model, seed)
        outputs = io_models.predictions(model, inputs)
        model.save(folder / f"{name}.keras")
        if name not in AS_KERAS_WRITES:
            packed(folder / f"{name}.keras")
        if name in WITH_JSON:
            (folder / f"{name}.json").write_text(model.to_json())
            model.save_weights(folder / f"{name}.weights.h5")
        x = inputs if len(inputs) > 1 else {"x": next(iter(inputs.values()))}
        np.savez(folder / f"{name}.npz", **x, **{f"y{i}": y for i, y in enumerate(outputs.values())})
        print(name, {key: value.shape for key, value in outputs.items()})


if __name__ == "__main__":
    main()
