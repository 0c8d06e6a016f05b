#!/usr/bin/env python3
"""Exports layers and models to ONNX and compares onnxruntime with `predict`.

  onnx_check.py MESHTRAIN [WORD ...]     WORD: only cases whose name has it

The cases are each layer of the goldens, the models of io_models.py, the configs of `configs`, and ResNet50 of
keras.applications. Prints the largest difference of each class, relative to the largest output, and what `export`
refuses. Exits with 1 where a difference is above 1e-5, or where ONNX' own checker finds a fault. Needs onnx and
onnxruntime, and Keras for ResNet50.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "keras"
CONFIGS = GOLDEN.parent.parent.parent / "configs"
# MLPs, convnets, a ResNet-20, GPTs and an LSTM, each with a limit of its ids.
NETWORKS = {"keras_guide_data_parallel": 7, "mirrored_mlp": 7, "jax_guide_convnet": 7, "mnist_convnet": 7, "cifar_resnet": 7,
            "vit_small": 7, "nanogpt_shakespeare": 40, "llama_tiny": 40, "moe_tiny": 40,
            "char_lstm_shakespeare": 40, "char_mlp": 40}
ALLOWED = 1e-5
TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int32)": np.int32, "tensor(bool)": bool,
         "tensor(uint8)": np.uint8}


class Refused(Exception):
    pass


def run(program, *args):
    result = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if result.returncode != 0:
        raise Refused(result.stderr.strip().split("\n")[0])


def inputs_of(session, samples, below, rng):
    """Normal numbers, or integers below the given limit."""
    out = {}
    for value in session.get_inputs():
        shape = [samples if isinstance(size, str) else size for size in value.shape]
        kind = TYPES[value.type]
        drawn = rng.normal(size=shape) if np.issubdtype(kind, np.floating) else rng.integers(0, below, shape)
        out[value.name] = drawn.astype(kind)
    return out


def difference(program, folder, config, weights, overrides, below):
    """Of all outputs for 1 and 5 samples."""
    model = folder / "model.onnx"
    run(program, "export", config, *overrides, "--weights", weights, "-o", model)
    onnx.checker.check_model(onnx.load(model), full_check=True)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    worst = 0.0
    for samples in (1, 5):
        given = inputs_of(session, samples, below, np.random.default_rng(samples))
        found = session.run(None, given)
        np.savez(folder / "x.npz", **given)
        run(program, "predict", config, *overrides, "--weights", weights, "-i", folder / "x.npz", "-o", folder / "y.npz")
        expected = np.load(folder / "y.npz")
        for one, name in zip(found, expected.files):
            scale = max(1.0, np.abs(expected[name]).max(initial=0))
            worst = max(worst, np.abs(one.astype(np.float64) - expected[name]).max(initial=0) / scale)
    return worst


def golden_config(case):
    """A config of one layer, and its weights."""
    layers, names = [], []
    for index, shape in enumerate(case["inputs"]):
        names.append(f"in{index}")
        limits = case.get("integers")
        limit = limits[index] if isinstance(limits, list) else limits
        layers.append({"Input": {"name": names[-1], "shape": shape[1:], "dtype": "int32" if limit else "float32"}})
    inputs = dict(zip(case["roles"], names)) if "roles" in case else list(names)
    if "masked" in case:
        layers.append({"Masking": {"name": "masked", "inputs": names[0]}})
        inputs[0] = "masked"
    arguments = {**case["config"], "name": "layer", "inputs": inputs}
    if "call" in case and "training" not in case["call"]:
        arguments["call"] = case["call"]
    layers.append({case["class_name"]: arguments})
    outputs = ["layer." + name if name else "layer" for name in case.get("outputs", [""])]
    rng = np.random.default_rng(7)
    weights = {}
    for weight in case["weights"]:
        value = rng.normal(0, 0.5, weight["shape"]).astype(np.float32)
        weights["layer/" + weight["name"]] = np.abs(value) + 0.2 if "variance" in weight["name"] else value
    losses = {output: "mse" for output in outputs}
    return {"model": {"layers": layers, "outputs": outputs}, "compile": {"loss": losses}}, weights


def random_weights(program, config, overrides):
    """Values for all variables that `plan` names: about as large as initial ones."""
    done = subprocess.run([program, "plan", str(config), *overrides, "--format", "json"], capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr.strip().split("\n")[0])
    rng = np.random.default_rng(11)
    weights = {}
    for variable in json.loads(done.stdout)["variables"]:
        name, shape = variable["path"], variable["shape"]
        value = rng.normal(0, 1 / np.sqrt(max(1, np.prod(shape[:-1], dtype=int))), shape).astype(np.float32)
        is_scale = name.endswith(("gamma", "scale", "variance"))
        weights[name] = np.abs(value) + 0.5 if is_scale else value
    return weights


def resnet50(folder):
    """ResNet50 for images of 64 x 64, as Keras saves it."""
    import keras

    model = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None)
    rng = np.random.default_rng(5)
    for weight in model.weights:
        value = rng.normal(0, np.sqrt(1 / max(1, np.prod(weight.shape[:-1]))), weight.shape)
        weight.assign(np.abs(value) + 0.5 if "variance" in weight.name or "gamma" in weight.name else value)
    model.save(folder / "resnet50.keras")
    return folder / "resnet50.keras"


def cases():
    for name, below in NETWORKS.items():
        yield f"config {name}", CONFIGS / f"{name}.yaml", {"integers": below}
    yield "keras.applications.ResNet50", resnet50, {}
    for path in sorted(GOLDEN.glob("layers*.json")):
        if "mixed" in path.name:
            continue
        for case in json.loads(path.read_text())["cases"]:
            yield case["class_name"], golden_config(case), case
    for path in sorted((GOLDEN / "io").glob("*.keras")):
        yield f"model {path.stem}", path, {}


def prepared(program, folder, made):
    """Config, weights and overrides of a case."""
    made = made(folder) if callable(made) else made
    if isinstance(made, pathlib.Path) and made.suffix == ".keras":
        run(program, "import", made, "-o", folder / "model")
        return folder / "model" / "config.yaml", folder / "model" / "weights.safetensors", []
    if isinstance(made, pathlib.Path):
        config, overrides = made, ["distribution=null", "data.transform=null"]  # which `predict` applies
        weights = random_weights(program, config, overrides)
    else:
        config, overrides, weights = folder / "config.yaml", [], made[1]
        config.write_text(json.dumps(made[0]))
    np.savez(folder / "weights.npz", **weights)
    return config, folder / "weights.npz", overrides


def main(program, words):
    worst, refused, failed = {}, collections.defaultdict(set), False
    for name, made, case in cases():
        if words and not any(word in name for word in words):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            try:
                limit = case.get("integers", 7)
                limit = min([each for each in limit if each] or [7]) if isinstance(limit, list) else limit
                found = difference(program, folder, *prepared(program, folder, made), limit)
                worst[name] = max(worst.get(name, 0.0), found)
            except Refused as error:
                refused[name].add(re.sub(r"^error\[E417\]: ", "", str(error)))
            except Exception as error:  # of the checker or the runtime
                failed = True
                print(f"{name}: {case.get('config')} {str(error)[:300]}")
    for name, value in sorted(worst.items()):
        failed = failed or value > ALLOWED
        print(f"{name:40} {value:.1e}{'' if value <= ALLOWED else '  <- above ' + str(ALLOWED)}")
    for name, reasons in sorted(refused.items()):
        print(f"{name:40} refused: {'; '.join(sorted(reasons))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]))
