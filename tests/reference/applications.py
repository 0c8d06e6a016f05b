#!/usr/bin/env python3
"""Networks of keras.applications at small sizes: architectures, and what they predict.

  KERAS_BACKEND=jax python3 applications.py                       writes ../golden/keras/applications
  KERAS_BACKEND=jax python3 applications.py --meshtrain PROGRAM   compares PROGRAM with Keras instead

NAME_SIZE.json.gz is model.to_json(); cases.json has what the models predict from the weights and images below. With
--meshtrain each model is saved with its weights as .keras, imported, and predicts on a mesh of one device and on 2 x 4
with 1 x 1 kernels split over `model`.
"""
import argparse
import gzip
import json
import pathlib
import subprocess
import tempfile
import zlib

import keras
import numpy as np

import splitmix

SIZES = (32, 33, 64)
SAMPLES = 4
# The kernels that a mesh splits: all of them have a number of filters that 4 divides.
SPLIT = {
    "MobileNet": r"conv_pw_.*/kernel",
    "MobileNetV2": r"block_.*_(expand|project)/kernel",
    "MobileNetV3Small": r"expanded_conv.*(expand|project)/kernel",
    "EfficientNetB0": r"block.*(expand|project)_conv/kernel",
    "NASNetMobile": r"separable_conv_.*(?<!stem)_[0-9]+/pointwise_kernel",
}
TAKES_PIXELS = {"MobileNetV3Small", "EfficientNetB0"}  # 0 to 255; the others take -1 to 1


def build(name, size):
    keras.utils.clear_session()
    make = getattr(keras.applications, name)
    return make(input_shape=(size, size, 3), weights=None, classes=10)


def gain(name):
    """How much the kernels enlarge: predictions depend on the image, and are no zeros and ones."""
    return 1 if name in ("MobileNetV2", "NASNetMobile") else 2


def kernel_scale(shape, gain):
    """The largest power of two whose square, times the inputs of an output, is at most 3 * 2^gain."""
    inputs = int(np.prod(shape[:-1])) if shape[-1] > 1 or len(shape) < 4 else int(np.prod(shape[:2]))
    halvings = 0
    while inputs > 3 * 2**gain * 4**halvings:
        halvings += 1
    return 2.0**-halvings


def weight_values(path, shape, gain):
    """Values that are a function of "layer/weight" alone, without Keras' scopes; no mean is 0, no variance 1."""
    layer, name = path.split("/")[-2:]
    seed = zlib.crc32(f"{layer}/{name}".encode())
    if "variance" in name or name == "gamma":
        return splitmix.unit(seed, shape) + np.float32(0.5)
    scale = kernel_scale(shape, gain) if len(shape) > 1 else 0.25
    # Of small logits float32 leaves more digits in the predictions.
    return splitmix.signed(seed, shape, scale / 4 if layer == "logits" else scale)


def fill(model, gain):
    for weight in model.weights:
        if weight.path.rsplit("/", 1)[-1] != "count" and "seed" not in weight.path:
            weight.assign(weight_values(weight.path, tuple(weight.shape), gain))
    for layer in model.layers:
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()


def images(name, size):
    """Noise on 4 x 4 coarse tiles, so that the mean over an image depends on the image."""
    noise = splitmix.below(1, 256, (SAMPLES, size, size, 3))
    tile = np.arange(size) * 4 // size
    tiles = splitmix.below(2, 256, (SAMPLES, 4, 4, 3))[:, tile][:, :, tile]
    pixels = ((noise + 3 * tiles) // 4).astype(np.float32)
    return pixels if name in TAKES_PIXELS else pixels * np.float32(2.0**-7) - np.float32(1)


def compare(program, name, size, model, x, expected):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save(folder / "m.keras")
        np.save(folder / "x.npy", x)
        def run(*arguments):
            subprocess.run([program, *arguments, "-q"], cwd=folder, check=True)
        subprocess.run([program, "import", "m.keras", "-o", "in"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for mesh, layout in (("1x1", []), ("2x4", [f'distribution.layout_map["{SPLIT[name]}"]=[null,null,null,model]'])):
            run("predict", "in/config.yaml", "--weights", "in/weights.safetensors", "--input", "x.npy", "--output", "y.npy",
                "distribution.type=ModelParallel", "distribution.device_mesh={shape: [1, 1], axis_names: [data, model]}",
                *layout, "--mesh", mesh, "--devices", "cpu:1" if mesh == "1x1" else "cpu:8")
            got = np.load(folder / "y.npy")
            worst = float((np.abs(got - expected).max(axis=1) / expected.max(axis=1)).max())
            print(f"{name} {size} on {mesh}: largest difference, in parts of the largest output, {worst:.1e}", flush=True)
            assert worst <= 1e-5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meshtrain")
    parser.add_argument("--only", help="one name; the other cases stay as they are")
    arguments = parser.parse_args()
    folder = pathlib.Path(__file__).resolve().parent.parent / "golden/keras/applications"
    folder.mkdir(parents=True, exist_ok=True)
    cases = json.loads((folder / "cases.json").read_text()) if arguments.only else {}
    for name in [arguments.only] if arguments.only else SPLIT:
        for size in SIZES:
            model = build(name, size)
            fill(model, gain(name))
            x = images(name, size)
            y = model.predict(x, verbose=0)
            if arguments.meshtrain:
                compare(arguments.meshtrain, name, size, model, x, y)
                continue
            packed = gzip.compress(model.to_json().encode(), 9, mtime=0)
            (folder / f"{name}_{size}.json.gz").write_bytes(packed)
            cases[f"{name}_{size}"] = {
                "size": size,
                "gain": gain(name),
                "pixels": name in TAKES_PIXELS,
                "split": SPLIT[name],
                "predictions": [[float(f"{value:.9g}") for value in row] for row in y],
            }
            print(name, size, len(packed), "bytes", y[0], flush=True)
    if not arguments.meshtrain:
        lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items()]
        (folder / "cases.json").write_text("{" + ",\n ".join(lines) + "}\n")


if __name__ == "__main__":
    main()
