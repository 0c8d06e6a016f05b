#!/usr/bin/env python3
"""Trains three reference models in Keras 3 on JAX and writes what came out to tests/golden/parity/.

README.md beside this file says how to set up Keras and states the models, formulas and file fields.

  KERAS_BACKEND=jax python parity.py [CASE ...]    every case of CASES when none is named

Every case runs in float32 and float64, on one device, as DataParallel on eight devices and as
ModelParallel on a 2 x 4 mesh; each run is a process of its own because dtype and devices are global.
"""
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "parity"
DTYPES = ("float32", "float64")
STRATEGIES = ("single", "data_parallel", "model_parallel")
STEPS = 100  # of a case that names no other number
SAMPLE_STRIDE = 97  # a prime that divides no dimension here, so every row and column is met

GUIDE = {
    "model": "Flatten, Dense d1 200 relu no bias, Dense d2 10 softmax",
    "input_shape": [28, 28, 1],
    "loss": "mean_squared_error",
    "optimizer": "RMSprop",
    "batch_size": 16,
    "samples": 128,
    "data": {"x": "signed(seed 101)", "y": "unit(seed 102), shape (128, 10)"},
    "initial_weights": {
        "d1/kernel": {"shape": [784, 200], "seed": 1, "scale": 0.0625},
        "d2/kernel": {"shape": [200, 10], "seed": 2, "scale": 0.125},
        "d2/bias": {"shape": [10], "zeros": True},
    },
    "snapshot_weights": ["float32", "float64"],
    "layout_map": {"d1/kernel": [None, "model"], "d1/bias": ["model"],
                   "d2/output": ["data", None]},
}
MIRRORED = {
    "model": "Dense dense 256 relu, Dense dense_1 256 relu, Dense dense_2 10",
    "input_shape": [784],
    "loss": "sparse_categorical_crossentropy from logits",
    "optimizer": "Adam",
    "batch_size": 64,
    "initial_weights": {
        "dense/kernel": {"shape": [784, 256], "seed": 11, "scale": 0.0625},
        "dense/bias": {"shape": [256], "zeros": True},
        "dense_1/kernel": {"shape": [256, 256], "seed": 12, "scale": 0.125},
        "dense_1/bias": {"shape": [256], "zeros": True},
        "dense_2/kernel": {"shape": [256, 10], "seed": 13, "scale": 0.125},
        "dense_2/bias": {"shape": [10], "zeros": True},
    },
    "layout_map": {"dense/kernel": [None, "model"], "dense/bias": ["model"],
                   "dense_1/kernel": ["model", None], "dense_2/output": ["data", None]},
}
CONVNET = {
    "model": "Rescaling 1/255; three times convolution without bias, same padding (conv2d 12 of 3x3, conv2d_1 24 of 6x6"
             " stride 2, large_k 32 of 6x6 stride 2), BatchNormalization(scale=False), relu; GlobalAveragePooling2D,"
             " Dense dense 256 relu, Dense dense_1 10",
    "input_shape": [28, 28, 1],
    "loss": "sparse_categorical_crossentropy from logits",
    "optimizer": "Adam",
    "batch_size": 64,
    "steps": 50,
    "x_scale": 1.0,
    "snapshot_weights": ["float64"],
    "initial_weights": {
        "conv2d/kernel": {"shape": [3, 3, 1, 12], "seed": 21, "scale": 0.5},
        "batch_normalization/beta": {"shape": [12], "zeros": True},
        "batch_normalization/moving_mean": {"shape": [12], "zeros": True},
        "batch_normalization/moving_variance": {"shape": [12], "ones": True},
        "conv2d_1/kernel": {"shape": [6, 6, 12, 24], "seed": 22, "scale": 0.0625},
        "batch_normalization_1/beta": {"shape": [24], "zeros": True},
        "batch_normalization_1/moving_mean": {"shape": [24], "zeros": True},
        "batch_normalization_1/moving_variance": {"shape": [24], "ones": True},
        "large_k/kernel": {"shape": [6, 6, 24, 32], "seed": 23, "scale": 0.0625},
        "batch_normalization_2/beta": {"shape": [32], "zeros": True},
        "batch_normalization_2/moving_mean": {"shape": [32], "zeros": True},
        "batch_normalization_2/moving_variance": {"shape": [32], "ones": True},
        "dense/kernel": {"shape": [32, 256], "seed": 24, "scale": 0.125},
        "dense/bias": {"shape": [256], "zeros": True},
        "dense_1/kernel": {"shape": [256, 10], "seed": 25, "scale": 0.125},
        "dense_1/bias": {"shape": [10], "zeros": True},
    },
    "layout_map": {"(conv2d.*|large_k)/kernel": [None, None, None, "model"],
                   "dense/kernel": [None, "model"], "dense/bias": ["model"],
                   "dense_1/kernel": ["model", None]},
}
CHAR_LSTM = {
    "model": "Embedding letters 65 -> 32, LSTM lstm_1 64 and lstm_2 64 with return_sequences, Dense next 65",
    "input_shape": [32],
    "loss": "sparse_categorical_crossentropy from logits",
    "optimizer": "Adam, learning_rate 0.004, global_clipnorm 5",
    "batch_size": 32,
    "steps": 200,
    "samples": 6400,
    "data": {"x": "tinyshakespeare.txt: ranks of characters among those of the text, windows of 32 that begin 16 apart",
             "y": "the same, one character later"},
    "strategies": ["single"],
    "snapshot_weights": ["float64"],
    "initial_weights": {
        "letters/embeddings": {"shape": [65, 32], "seed": 31, "scale": 0.0625},
        **{f"lstm_{i}/lstm_cell/{name}": {"shape": shape, "seed": 30 + 10 * i + j, "scale": 0.125}
           for i, inputs in ((1, 32), (2, 64))
           for j, (name, shape) in enumerate((("kernel", [inputs, 256]), ("recurrent_kernel", [64, 256]), ("bias", [256])), 2)},
        "next/kernel": {"shape": [64, 65], "seed": 61, "scale": 0.125},
        "next/bias": {"shape": [65], "zeros": True},
    },
}
SYNTHETIC = {
    "samples": 1280,
    "data": {"x": "(below(seed 201, 256)[(s % 10) * 784 + j] + 7 * below(seed 202, 256)[s * 784 + j])"
                  " >> 3, times x_scale", "y": "s % 10"},
}
MNIST = {
    "samples": 6400,
    "data": {"x": "t10k-images-idx3-ubyte.gz, the first images, 0..255, times x_scale",
             "y": "t10k-labels-idx1-ubyte.gz, the first"},
}
# Pixels of 0..255 make float32 training chaotic: two summation orders part after a few dozen steps
# (README.md). Final weights are therefore kept in float64 there, in float32 where x is below 1.
RAW = {"x_scale": 1.0, "snapshot_weights": ["float64"]}
SCALED = {"x_scale": 2.0**-8, "snapshot_weights": ["float32"]}
CASES = {
    "guide_mlp": GUIDE,
    "mirrored_mlp": MIRRORED | SYNTHETIC | RAW,
    "mirrored_mlp_scaled": MIRRORED | SYNTHETIC | SCALED,
    "mirrored_mlp_mnist": MIRRORED | MNIST | RAW,
    "mirrored_mlp_mnist_scaled": MIRRORED | MNIST | SCALED,
    "guide_convnet": CONVNET | SYNTHETIC,
    "guide_convnet_mnist": CONVNET | MNIST | {"samples": 3200, "snapshot_weights": []},
    "char_lstm_shakespeare": CHAR_LSTM,
}


def dataset_folder():
    return pathlib.Path(os.environ.get("MESHTRAIN_DATA", ROOT.parent / "shared" / "datasets"))


def text_windows(case, np):
    """Windows of a text as ids, and the same one character later."""
    text = (dataset_folder() / "tinyshakespeare.txt").read_text()
    ranks = {letter: rank for rank, letter in enumerate(sorted(set(text)))}
    length = CASES[case]["input_shape"][0]
    ids = np.array([ranks[letter] for letter in text[:CASES[case]["samples"] * (length // 2) + length + 1]], np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(ids, length + 1)[::length // 2][:CASES[case]["samples"]]
    return windows[:, :-1], windows[:, 1:]


def make_data(case, np, splitmix):
    samples = CASES[case]["samples"]
    if case == "char_lstm_shakespeare":
        return text_windows(case, np)
    if case == "guide_mlp":
        return splitmix.signed(101, (samples, 28, 28, 1)), splitmix.unit(102, (samples, 10))
    scale = np.float32(CASES[case]["x_scale"])
    if "mnist" not in case:
        prototype = splitmix.below(201, 256, (10, 784))
        noise = splitmix.below(202, 256, (samples, 784))
        y = np.arange(samples) % 10
        x = (prototype[y] + 7 * noise) >> 3
    else:
        images = gzip.open(dataset_folder() / "t10k-images-idx3-ubyte.gz").read()
        labels = gzip.open(dataset_folder() / "t10k-labels-idx1-ubyte.gz").read()
        x = np.frombuffer(images, np.uint8, samples * 784, 16).reshape(samples, 784)
        y = np.frombuffer(labels, np.uint8, samples, 8)
    x = x.astype(np.float32) * scale
    return x.reshape([samples] + CASES[case]["input_shape"]), y.astype(np.int32)


def make_model(case, keras):
    layers = keras.layers
    inputs = layers.Input(CASES[case]["input_shape"], dtype="int32" if "lstm" in case else None)
    if case == "guide_mlp":
        x = layers.Flatten()(inputs)
        x = layers.Dense(200, use_bias=False, activation="relu", name="d1")(x)
        outputs = layers.Dense(10, activation="softmax", name="d2")(x)
        optimizer, loss = keras.optimizers.RMSprop(), "mse"
    elif case.startswith("guide_convnet"):
        x = layers.Rescaling(1.0 / 255.0)(inputs)
        for filters, size, stride, name in ((12, 3, 1, "conv2d"), (24, 6, 2, "conv2d_1"), (32, 6, 2, "large_k")):
            x = layers.Conv2D(filters, size, stride, padding="same", use_bias=False, name=name)(x)
            x = layers.BatchNormalization(scale=False, center=True)(x)
            x = layers.ReLU()(x)
        x = layers.GlobalAveragePooling2D()(x)
        x = layers.Dense(256, activation="relu", name="dense")(x)
        outputs = layers.Dense(10, name="dense_1")(x)
        optimizer = keras.optimizers.Adam(1e-3)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    elif case == "char_lstm_shakespeare":
        x = layers.Embedding(65, 32, name="letters")(inputs)
        x = layers.LSTM(64, return_sequences=True, name="lstm_1")(x)
        x = layers.LSTM(64, return_sequences=True, name="lstm_2")(x)
        outputs = layers.Dense(65, name="next")(x)
        optimizer = keras.optimizers.Adam(0.004, global_clipnorm=5.0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        x = layers.Dense(256, activation="relu", name="dense")(inputs)
        x = layers.Dense(256, activation="relu", name="dense_1")(x)
        outputs = layers.Dense(10, name="dense_2")(x)
        optimizer = keras.optimizers.Adam(1e-3)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer=optimizer, loss=loss)
    return model


def set_strategy(case, strategy, keras):
    api = keras.distribution
    devices = api.list_devices("cpu")
    if strategy == "data_parallel":
        mesh = api.DeviceMesh((8,), ("data",), devices)
        api.set_distribution(api.DataParallel(device_mesh=mesh))
    elif strategy == "model_parallel":
        mesh = api.DeviceMesh((2, 4), ("data", "model"), devices)
        layout_map = api.LayoutMap(mesh)
        for key, axes in CASES[case]["layout_map"].items():
            layout_map[key] = tuple(axes)
        api.set_distribution(api.ModelParallel(layout_map=layout_map, batch_dim_name="data"))


def run_one(case, dtype, strategy, output):
    """One training run; losses and final weights go to `output` (npz)."""
    if dtype == "float64":
        import float64
    import keras
    import numpy as np
    import splitmix

    keras.config.set_floatx(dtype)
    set_strategy(case, strategy, keras)
    model = make_model(case, keras)
    spec = CASES[case]["initial_weights"]
    variables = [v for v in model.variables if "seed_generator" not in v.path]
    assert sorted(v.path for v in variables) == sorted(spec), [v.path for v in variables]
    for variable in variables:
        want = spec[variable.path]
        shape = tuple(want["shape"])
        if "seed" in want:
            value = splitmix.signed(want["seed"], shape, want["scale"])
        else:
            value = np.zeros(shape) if want.get("zeros") else np.ones(shape)
        variable.assign(value.astype(dtype))
    if strategy == "model_parallel":  # the map must act; a map that matches nothing proves nothing
        first = model.trainable_variables[0]
        assert first.value.sharding.spec[-1] == "model", (first.path, first.value.sharding)

    x, y = make_data(case, np, splitmix)
    x = x.astype(dtype) if x.dtype == np.float32 else x
    y = y.astype(dtype) if y.dtype == np.float32 else y
    batch = CASES[case]["batch_size"]
    losses = []
    for step in range(CASES[case].get("steps", STEPS)):
        begin = step * batch % len(x)
        model.reset_metrics()  # so that the reported mean is this batch's loss alone
        losses.append(float(model.train_on_batch(x[begin:begin + batch], y[begin:begin + batch])))
    weights = {v.path: np.asarray(v.value) for v in variables}
    assert all(w.dtype == dtype for w in weights.values())
    np.savez(output, losses=np.array(losses), **weights)


def start(case, dtype, strategy, output):
    environment = os.environ | {
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_ENABLE_X64": "1" if dtype == "float64" else "0",
    }
    subprocess.run([sys.executable, __file__, "--one", case, dtype, strategy, output],
                   env=environment, check=True)


def number(value, dtype):
    """The shortest decimal that reads back as the same number of that dtype."""
    import numpy as np
    return float(str(np.dtype(dtype).type(value)))


def summary(array, dtype):
    import numpy as np
    wide = array.astype(np.float64)
    return {"shape": list(array.shape), "sum": float(wide.sum()),
            "l2_norm": float(np.sqrt((wide * wide).sum())),
            "samples": [number(v, dtype) for v in array.reshape(-1)[::SAMPLE_STRIDE]]}


def relative(losses, reference):
    import numpy as np
    return np.abs(losses - reference) / np.abs(reference)


def difference(a, b):
    """How far a run on a mesh is from the run on one device."""
    import numpy as np
    return {
        "max_relative_loss": float(np.max(relative(a["losses"], b["losses"]))),
        "max_absolute_weight": float(max(np.max(np.abs(a[k] - b[k])) for k in a.files if k != "losses")),
    }


def spread(runs):
    """Largest relative difference up to each step between Keras' own float32 runs of one case and
    the float64 run: what rounding alone does to these losses."""
    import numpy as np
    single = runs["float32"]["single"]["losses"]
    others = [run["losses"] for name, run in runs["float32"].items() if name != "single"] + [runs["float64"]["single"]["losses"]]
    worst = np.maximum.accumulate(np.max([relative(o, single) for o in others], axis=0))
    return [float(f"{v:.2g}") for v in worst]


def record(case):
    import keras
    import numpy as np
    from importlib.metadata import version
    golden = {"case": case, "made_with": {"keras": keras.__version__, "jax": version("jax")},
              "steps": STEPS, "sample_stride": SAMPLE_STRIDE, **CASES[case]}
    runs = {dtype: {} for dtype in DTYPES}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in DTYPES:
            for strategy in CASES[case].get("strategies", STRATEGIES):
                path = os.path.join(folder, f"{dtype}-{strategy}.npz")
                start(case, dtype, strategy, path)
                runs[dtype][strategy] = np.load(path)
    golden["float32_spread"] = spread(runs)
    for dtype in DTYPES:
        single = runs[dtype]["single"]
        golden[dtype] = {
            "keras_against_one_device":
                {s: difference(run, single) for s, run in runs[dtype].items() if s != "single"},
            "losses": [number(v, dtype) for v in single["losses"]],
        }
        if dtype in CASES[case]["snapshot_weights"]:
            golden[dtype]["final_weights"] = {
                k: summary(single[k], dtype) for k in CASES[case]["initial_weights"]}
        print(case, dtype, "loss", single["losses"][0], "->", single["losses"][-1],
              golden[dtype]["keras_against_one_device"], flush=True)
    text = json.dumps(golden, indent=1)
    # Lists of numbers on few lines; the rest of the file one value a line.
    text = re.sub(r"\[\s*([^\[\]{}]*?)\s*\]", lambda m: "[" + fold(m.group(1)) + "]", text)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    (GOLDEN / f"{case}.json").write_text(text + "\n")


def fold(items):
    return textwrap.fill(" ".join(items.split()), 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run_one(*sys.argv[2:])
    else:
        for name in sys.argv[1:] or CASES:
            record(name)
