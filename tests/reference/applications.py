#!/usr/bin/env python3
"""Networks of keras.applications at small sizes: architectures, and what they predict.

  KERAS_BACKEND=jax python3 applications.py                       writes ../golden/keras/applications
  KERAS_BACKEND=jax python3 applications.py --meshtrain PROGRAM   compares PROGRAM with Keras instead
  KERAS_BACKEND=jax python3 applications.py --weights             writes ../golden/keras/applications/weights.json
  KERAS_BACKEND=tensorflow python3 applications.py --train --table PROGRAM [NAME...]   rows of configs/KERAS.md
  KERAS_BACKEND=jax python3 applications.py --without-top PROGRAM [NAME...]   features of networks without their heads
  KERAS_BACKEND=tensorflow python3 applications.py --last-bits [NAME...]      how far roundings alone take Keras' training

NAME_SIZE.json.gz is model.to_json(); cases.json has what the models predict from the weights and images below. With
--meshtrain each model is saved with its weights as .keras, imported, and predicts on a mesh of one device and on 2 x 4
with 1 x 1 kernels split over `model`. --table does it for any network, with the last kernels split, from the saved
model and from the template of `init`; then SGD and Adam train the saved model for five steps in float64, without
dropout, beside Keras. It writes Keras' losses and the range of the outputs to stderr.
"""
import argparse
import gzip
import json
import math
import pathlib
import re
import subprocess
import sys
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
TAKES_PIXELS = ("MobileNetV3", "EfficientNet", "ConvNeXt")  # 0 to 255; the others take -1 to 1


def build(name, size):
    keras.utils.clear_session()
    make = getattr(keras.applications, name)
    return make(input_shape=(size, size, 3), weights=None, classes=10)


def gain(name):
    """How much the kernels enlarge: predictions depend on the image, and neither they nor gates are zeros and ones.

    With 2, predictions of EfficientNetV2B0 in Keras' float32 and float64 differ by 10%, and those of EfficientNetB4 have
    nothing in common. With 1.5, features of EfficientNetV2L differ by 39%, with 0.85 by 5e-7; those of EfficientNetB7
    by 1e-3, with 1.25 by 4e-5.
    """
    if name == "EfficientNetV2L":
        return 0.85
    if name == "EfficientNetB7":
        return 1.25
    if name == "MobileNetV3Large":
        return 1.75
    if name.startswith("EfficientNetV2") or name in ("EfficientNetB3", "EfficientNetB4", "EfficientNetB5", "EfficientNetB6"):
        return 1.5
    return 1 if name in ("MobileNetV2", "NASNetMobile", "NASNetLarge") else 2


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


def soften_head(model, x):
    """Divides the head's kernel by the power of two that keeps logits of `x` within 4: no output is 0 or 1 then."""
    head = [layer for layer in model.layers if layer.weights][-1]
    kernel, bias = head.get_weights()
    features = keras.Model(model.input, head.input).predict(x, verbose=0).reshape(len(x), -1)
    largest = float(np.abs(features.astype("float64") @ kernel.reshape(-1, kernel.shape[-1])).max())
    head.set_weights([kernel * np.float32(2.0 ** min(0, math.floor(math.log2(4 / largest)))), bias])


def images(name, size):
    """Noise on 4 x 4 coarse tiles, so that the mean over an image depends on the image."""
    noise = splitmix.below(1, 256, (SAMPLES, size, size, 3))
    tile = np.arange(size) * 4 // size
    tiles = splitmix.below(2, 256, (SAMPLES, 4, 4, 3))[:, tile][:, :, tile]
    pixels = ((noise + 3 * tiles) // 4).astype(np.float32)
    return pixels if name.startswith(TAKES_PIXELS) else pixels * np.float32(2.0**-7) - np.float32(1)


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


# Names of keras.applications and of `init`.
TEMPLATES = {
    "Xception": "xception", "VGG16": "vgg16", "VGG19": "vgg19", "ResNet50": "resnet50", "ResNet101": "resnet101",
    "ResNet152": "resnet152", "ResNet50V2": "resnet50v2", "ResNet101V2": "resnet101v2", "ResNet152V2": "resnet152v2",
    "MobileNet": "mobilenet", "MobileNetV2": "mobilenet_v2", "MobileNetV3Small": "mobilenet_v3_small",
    "MobileNetV3Large": "mobilenet_v3_large", "DenseNet121": "densenet121", "DenseNet169": "densenet169",
    "DenseNet201": "densenet201", **{f"EfficientNetB{i}": f"efficientnet_b{i}" for i in range(8)},
    **{f"EfficientNetV2{i}": f"efficientnet_v2_{i.lower()}" for i in ("B0", "B1", "B2", "B3", "S", "M", "L")},
    **{f"ConvNeXt{i}": f"convnext_{i.lower()}" for i in ("Tiny", "Small", "Base", "Large", "XLarge")},
    "InceptionV3": "inception_v3", "InceptionResNetV2": "inception_resnet_v2",
    "NASNetMobile": "nasnet_mobile", "NASNetLarge": "nasnet_large",
}
LEAST = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}  # sizes that Keras takes
# Training sizes: in smaller images each batch norm of the last stages sees four numbers, and roundings explode.
WIDE = {"InceptionV3": 139, "InceptionResNetV2": 139, "Xception": 71, "ResNet101": 128, "ResNet152": 128, "ResNet152V2": 128}


def run(program, folder, *arguments):
    result = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)}\n{result.stderr}")
    return result.stdout


def largest_difference(found, expected):
    return float((np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)).max())


def predictions(program, folder, name, config, mesh, extra=()):
    """With several devices the kernel of the head is split over its inputs: ten classes are not for four devices."""
    is_conv = name == "MobileNet" or name.startswith("MobileNetV3")
    layout = "[null,null,model,null]" if is_conv else "[model,null]"
    rules = [] if mesh == "1x1" else [
        f'distribution.layout_map["(predictions|logits|conv_preds|.*head_dense)/kernel"]={layout}']
    run(program, folder, "predict", config, "--weights", "m.keras", "--input", "x.npy", "--output", "y.npy", "-q",
        "distribution.type=ModelParallel", "distribution.device_mesh={shape: [1, 1], axis_names: [data, model]}",
        *rules, *extra, "--mesh", mesh, "--devices", "cpu:1" if mesh == "1x1" else "cpu:8")
    return np.load(folder / "y.npy")


# Keras makes float32 of a Python number before it makes float64 of that: these numbers are exact in both.
OPTIMIZERS = {
    "SGD": {"learning_rate": 2.0**-13},
    "Adam": {"learning_rate": 2.0**-13, "beta_1": 0.875, "beta_2": 1 - 2.0**-10, "epsilon": 2.0**-23},
}


# Within five steps of the learning rate above, roundings become parts of a million of these networks' losses, or more:
# they have 2^-7 or 2^-10 of it.
STEEP = {"ResNet101": 7, "ResNet152": 10, "ResNet152V2": 7, "EfficientNetV2M": 7, "EfficientNetV2L": 7}


def numbers_of(optimizer, name):
    numbers = OPTIMIZERS[optimizer]
    return {**numbers, "learning_rate": numbers["learning_rate"] * 2.0 ** -STEEP.get(name, 0)}


def wide_model(name, size):
    """In float64, without dropout. With TensorFlow: on JAX Keras takes means in float32."""
    assert keras.backend.backend() == "tensorflow", "--train needs KERAS_BACKEND=tensorflow"
    model = build(name, size)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    fill(model, gain(name))
    take_depthwise(model)
    return model


def loss_of_probabilities(y_true, y_pred):
    """Sparse categorical crossentropy as on JAX, with its clip. On TensorFlow Keras takes the logits of a last softmax."""
    ids = keras.ops.cast(keras.ops.reshape(y_true, (-1, 1)), "int32")
    picked = keras.ops.take_along_axis(y_pred, ids, axis=1)[:, 0]
    return -keras.ops.log(keras.ops.clip(picked, 1e-7, 1 - 1e-7))


def losses_in_keras(model, optimizer, numbers, x, y):
    model.compile(optimizer=getattr(keras.optimizers, optimizer)(**numbers), loss=loss_of_probabilities,
                  jit_compile=False)  # compiling takes longer than five steps
    return [float(model.train_on_batch(x, y)) for _ in range(5)]


def apart(found, expected):
    return max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))


def compare_last_bits(name):
    """Keras beside itself: a loss of five steps when the last bit of each weight changes, in parts of that loss."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    size = WIDE.get(name, 64)
    x, y = images(name, size).astype(np.float64), np.arange(SAMPLES) % 10
    model = wide_model(name, size)
    widen_constants(model)
    for optimizer in OPTIMIZERS:
        fill(model, gain(name))
        expected = losses_in_keras(model, optimizer, numbers_of(optimizer, name), x, y)
        fill(model, gain(name))
        for weight in model.trainable_variables:
            weight.assign(np.nextafter(np.asarray(weight.value), np.inf))
        found = losses_in_keras(model, optimizer, numbers_of(optimizer, name), x, y)
        print(f"{name} {optimizer}: {apart(found, expected):.0e}", flush=True)


def trained(program, folder, optimizer, numbers, losses):
    """The largest difference of a loss of five steps from the weights of m.keras, in parts of it."""
    run(program, folder, "train", "wide/config.yaml", "dtype_policy=float64", "fit.initial_weights=m.keras",
        "data.train={source: npz, path: ../train.npz}", "data.shuffle=false", f"fit.batch_size={SAMPLES}", "fit.epochs=5",
        f"compile={{optimizer: {json.dumps({optimizer: numbers})}, loss: sparse_categorical_crossentropy}}",
        "run.log_steps=true", "checkpoint.every=never", "-o", f"run_{optimizer}", "-q")
    lines = [json.loads(line) for line in (folder / f"run_{optimizer}" / "metrics.jsonl").read_text().splitlines()]
    return apart([line["loss"] for line in lines if line["event"] == "step"], losses)


def path_of(name, weight):
    """NASNet's weights have scopes that are no layers, ConvNeXt's scales numbers: Keras' files have neither."""
    if name.startswith("ConvNeXt"):
        return re.sub(r"/variable_[0-9]+$", "/variable", weight.path)
    return "/".join(weight.path.split("/")[-2:]) if name.startswith("NASNet") else weight.path


def write_weights(only):
    """For each template: parameters, and the CRC-32 of the sorted lines "path size x size"."""
    golden = pathlib.Path(__file__).resolve().parent.parent / "golden/keras/applications/weights.json"
    rows = json.loads(golden.read_text()) if only else {}
    for name, template in TEMPLATES.items():
        if only and not name.startswith(only):
            continue
        keras.utils.clear_session()
        model = getattr(keras.applications, name)(weights=None)
        lines = sorted(f"{path_of(name, weight)} {'x'.join(map(str, weight.shape))}" for weight in model.weights if "seed" not in weight.path)
        rows[template] = {"params": model.count_params(), "weights": len(lines), "crc32": zlib.crc32("\n".join(lines).encode())}
        print(template, rows[template], lines[0], flush=True)
    golden.write_text("{" + ",\n ".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()) + "}\n")


def prediction_cells(program, folder, name, size, model):
    """On one device, on 2 x 4, and from the template, which NASNet has not."""
    fill(model, gain(name))
    x = images(name, size)
    soften_head(model, x)
    y = model.predict(x, verbose=0)
    print(f"{name}: outputs of {y.min():.1e} to {y.max():.2f}, spread {y.std(axis=0).max():.1e}", file=sys.stderr, flush=True)
    model.save(folder / "m.keras")
    np.save(folder / "x.npy", x)
    run(program, folder, "import", "m.keras", "-o", "in")
    cells = [largest_difference(predictions(program, folder, name, "in/config.yaml", mesh), y) for mesh in ("1x1", "2x4")]
    if name not in TEMPLATES:
        return [*cells, None]
    (folder / "t.yaml").write_text(run(program, folder, "init", TEMPLATES[name]))
    of_template = predictions(program, folder, name, "t.yaml", "1x1", [f"vars.size={size}", "vars.classes=10"])
    return [*cells, largest_difference(of_template, y)]


def compare_features(program, name):
    """Without the head: feature maps, and their means and maxima, on one device and on 2 x 4."""
    size = WIDE.get(name, 64)
    for pooling in (None, "avg", "max"):
        keras.utils.clear_session()
        make = getattr(keras.applications, name)
        model = make(include_top=False, weights=None, input_shape=(size, size, 3), pooling=pooling)
        fill(model, gain(name))
        x = images(name, size)
        y = model.predict(x, verbose=0).reshape(len(x), -1)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            model.save(folder / "m.keras")
            np.save(folder / "x.npy", x)
            run(program, folder, "import", "m.keras", "-o", "in")
            found = [largest_difference(features(program, folder, mesh).reshape(y.shape), y) for mesh in ("1x1", "2x4")]
        print(f"{name}, pooling {pooling}: {found[0]:.0e} on 1x1, {found[1]:.0e} on 2x4, of {np.abs(y).max():.2g}", flush=True)


def features(program, folder, mesh):
    run(program, folder, "predict", "in/config.yaml", "--weights", "m.keras", "--input", "x.npy", "--output", "y.npy", "-q",
        "distribution={type: ModelParallel, device_mesh: {shape: [1, 1], axis_names: [data, model]}}",
        "--mesh", mesh, "--devices", "cpu:1" if mesh == "1x1" else "cpu:8")
    return np.load(folder / "y.npy")


def exact_gelu(x):
    """TensorFlow's has a constant in float32: it is 5e-9 off."""
    return 0.5 * x * (1 + keras.ops.erf(x / np.float64(2) ** 0.5))


def take_depthwise(model):
    """ConvNeXt's convolutions have a group for each channel. TensorFlow gives these to XLA, whose float64 kernels take an
    hour for five steps; as depthwise ones they are the same sums."""
    import tensorflow as tf

    def convolution(inputs, kernel):
        rows, columns, _, channels = kernel.shape
        kernel = tf.reshape(kernel, (rows, columns, channels, 1))
        return tf.nn.depthwise_conv2d(inputs, kernel, strides=[1, 1, 1, 1], padding="SAME")

    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Conv2D) and layer.groups > 1 and layer.groups == layer.filters:
            assert layer.strides == (1, 1) and layer.dilation_rate == (1, 1) and layer.padding == "same"
            layer.convolution_op = convolution


def widen_constants(model):
    """Keras makes float32 of Python numbers, in a float64 model, too: these layers shall have all digits."""
    for layer in model.layers:
        if isinstance(layer, keras.layers.Activation) and layer.activation is keras.activations.gelu:
            layer.activation = exact_gelu
        if isinstance(layer, keras.layers.Rescaling):
            layer.scale, layer.offset = np.asarray(layer.scale, "float64"), np.asarray(layer.offset, "float64")
        if isinstance(layer, keras.layers.Normalization) and layer.input_mean is not None:
            layer.mean = np.asarray(layer.input_mean, "float64").reshape(layer.mean.shape)
            layer.variance = np.asarray(layer.input_variance, "float64").reshape(layer.variance.shape)


def write_losses(folder, name):
    """Keras' half of training_cells(): m.keras, the samples, and the losses of five steps with each optimizer."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    size = WIDE.get(name, 64)
    x, y = images(name, size).astype(np.float64), np.arange(SAMPLES) % 10
    np.savez(folder / "train.npz", x=x, y=y.astype(np.int32))
    model = wide_model(name, size)
    model.save(folder / "m.keras")
    widen_constants(model)
    losses = {}
    for optimizer in OPTIMIZERS:
        fill(model, gain(name))
        losses[optimizer] = losses_in_keras(model, optimizer, numbers_of(optimizer, name), x, y)
    (folder / "losses.json").write_text(json.dumps(losses))


def training_cells(program, folder, name):
    """SGD and Adam from the same weights. Keras runs in a process of its own, whose memory is free afterwards."""
    subprocess.run([sys.executable, __file__, "--losses", folder, name], check=True)
    losses = json.loads((folder / "losses.json").read_text())
    print(f"{name}: losses {losses}", file=sys.stderr, flush=True)
    run(program, folder, "import", "m.keras", "-o", "wide")
    return [trained(program, folder, optimizer, numbers_of(optimizer, name), losses[optimizer]) for optimizer in OPTIMIZERS]


def table_row(program, name, size, trains):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = build(name, size)
        parameters = model.count_params()
        cells = prediction_cells(program, folder, name, size, model)
        del model
        cells += training_cells(program, folder, name) if trains else [None, None]
    shown = ["-" if cell is None else f"{cell:.0e}" for cell in cells]
    print(f"| `{name}` | {size} | {parameters:,} | " + " | ".join(shown) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meshtrain")
    parser.add_argument("--weights", action="store_true", help="number and checksum of the weights' names and shapes")
    parser.add_argument("--table", nargs="+", metavar="PROGRAM NAME", help="the program, then names; all of them without")
    parser.add_argument("--train", action="store_true", help="with --table: five steps in float64, too")
    parser.add_argument("--without-top", nargs="+", metavar="PROGRAM NAME", help="the program, then names; all of them without")
    parser.add_argument("--last-bits", nargs="*", metavar="NAME", help="Keras beside itself, with the last bits changed")
    parser.add_argument("--losses", nargs=2, metavar=("FOLDER", "NAME"), help="what --train compares with, for itself")
    parser.add_argument("--only", help="one name; the other cases stay as they are")
    arguments = parser.parse_args()
    if arguments.losses:
        write_losses(pathlib.Path(arguments.losses[0]), arguments.losses[1])
        return
    if arguments.weights:
        write_weights(arguments.only)
        return
    if arguments.table:
        for name in arguments.table[1:] or TEMPLATES:
            table_row(arguments.table[0], name, LEAST.get(name, 32), arguments.train)
        return
    if arguments.without_top:
        for name in arguments.without_top[1:] or TEMPLATES:
            compare_features(arguments.without_top[0], name)
        return
    if arguments.last_bits is not None:
        for name in arguments.last_bits or TEMPLATES:
            compare_last_bits(name)
        return
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
                "pixels": name.startswith(TAKES_PIXELS),
                "split": SPLIT[name],
                "predictions": [[float(f"{value:.9g}") for value in row] for row in y],
            }
            print(name, size, len(packed), "bytes", y[0], flush=True)
    if not arguments.meshtrain:
        lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items()]
        (folder / "cases.json").write_text("{" + ",\n ".join(lines) + "}\n")


if __name__ == "__main__":
    main()
