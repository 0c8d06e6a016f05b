"""Keras' callbacks over made-up epochs: what they print, write, save, set, and when they stop.

Writes tests/golden/keras/callbacks.json; tests/unit/train/callbacks_test.cc replays each case.
"""

import contextlib
import io
import json
import math
import os
import pathlib
import tempfile
import warnings

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "keras" / "callbacks.json"
BATCHES = 3


class Model:
    """As much of a model as callbacks touch; its one weight is the number of the epoch."""

    def __init__(self, rate):
        self.optimizer = keras.optimizers.SGD(learning_rate=rate)
        self.metrics = []
        self.stop_training = False
        self.weight = -1
        self.saved = []

    def get_weights(self):
        return [self.weight]

    def set_weights(self, weights):
        self.weight = weights[0]

    def save(self, path, overwrite):
        self.saved.append([path, self.weight])

    save_weights = save


def schedule(text):
    names = {"exp": math.exp, "cos": math.cos, "sqrt": math.sqrt, "floor": math.floor, "abs": abs, "min": min,
             "max": max, "pi": math.pi, "log": math.log}
    return lambda epoch, lr: float(eval(text[1:], dict(names, epoch=epoch, lr=lr)))


def make(entry):
    ((name, args),) = entry.items()
    args = dict(args)
    if name == "LearningRateScheduler":
        args["schedule"] = schedule(args["schedule"])
    return getattr(keras.callbacks, name)(**args)


def run(case):
    model = Model(case["rate"])
    callbacks = [make(entry) for entry in case["callbacks"]]
    for callback in callbacks:
        callback.set_model(model)
        callback.set_params({"epochs": len(case["logs"]), "verbose": 0})
        callback.on_train_begin()
    result = {"rates": [], "logs": []}
    for epoch, given in enumerate(case["logs"]):
        for callback in callbacks:
            callback.on_epoch_begin(epoch)
        model.weight = epoch
        for batch in range(BATCHES):
            for callback in callbacks:
                callback.on_train_batch_end(batch, dict(given[:1]))
        logs = dict(given)
        for callback in callbacks:
            callback.on_epoch_end(epoch, logs)
        result["rates"].append(float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)))
        result["logs"].append(list(logs.items()))
        if model.stop_training:
            break
    for callback in callbacks:
        callback.on_train_end()
    result["saved"] = model.saved
    result["weight"] = model.weight
    return result


def record(case):
    printed = io.StringIO()
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        os.chdir(folder)
        for name, text in case.get("files", {}).items():
            pathlib.Path(name).write_bytes(text.encode())
        with contextlib.redirect_stdout(printed):
            result = run(case)
        os.chdir(before)
        result["printed"] = printed.getvalue()
        result["warnings"] = list(dict.fromkeys(str(w.message) for w in caught if "callbacks" in w.filename
                                                or w.category is UserWarning))
        result["files"] = {str(path.relative_to(folder)): path.read_bytes().decode()
                           for path in sorted(pathlib.Path(folder).rglob("*.csv"))}
    return dict(case, result=result)


def losses(seed, count, step=0.25):
    """Falling, with plateaus and ties."""
    draw = np.random.default_rng(seed)
    values = np.cumsum(draw.integers(-2, 3, count)) * step + 4
    return [float(np.float32(v)) for v in values]


def epochs(values, metric=None):
    return [[["loss", float(np.float32(v + 0.1))], ["val_loss", v]] + ([["val_accuracy", metric[i]]] if metric else [])
            for i, v in enumerate(values)]


def cases():
    down = [1.0, 0.8, 0.9, 0.7, 0.7, 0.75, 0.72, 0.71, 0.6, 0.61, 0.62, 0.63]
    down = [float(np.float32(v)) for v in down]
    plain = epochs(down)
    early = [{}, {"patience": 2}, {"patience": 3, "restore_best_weights": True}, {"min_delta": 0.1, "patience": 1},
             {"min_delta": -0.05, "patience": 2}, {"baseline": 0.65, "patience": 2},
             {"baseline": 0.65, "patience": 5, "restore_best_weights": True}, {"start_from_epoch": 4},
             {"start_from_epoch": 4, "patience": 2, "restore_best_weights": True}, {"monitor": "loss", "patience": 1},
             {"monitor": "nothing", "mode": "min"}, {"mode": "max", "patience": 1},
             {"start_from_epoch": 50, "restore_best_weights": True}]
    for args in early:
        yield 0.01, [{"EarlyStopping": dict(args, verbose=1)}], plain
    plateau = [{"patience": 2}, {"patience": 0}, {"patience": 1, "factor": 0.5, "cooldown": 2},
               {"patience": 1, "min_lr": 0.002}, {"patience": 1, "min_lr": 0.01}, {"patience": 1, "min_delta": 0.2},
               {"monitor": "nothing", "mode": "min", "patience": 1}, {"mode": "max", "patience": 1, "factor": 0.3}]
    for args in plateau:
        yield 0.01, [{"ReduceLROnPlateau": dict(args, verbose=1)}], plain
    for text in ["=0.1", "=lr * 0.5", "=lr if epoch < 3 else lr * exp(-0.1)", "=0.1 / (1 + epoch)",
                 "=0.5 * 0.1 * (1 + cos(pi * epoch / 12))", "=[0.1, 0.01, 0.001][min(epoch // 4, 2)]",
                 "=0.1 if epoch < 2 else 0.01 if epoch < 5 else 1e-5", "=max(lr / 3, 1e-7)"]:
        yield 0.01, [{"LearningRateScheduler": {"schedule": text, "verbose": 1}}], plain
    check = [{"filepath": "m-{epoch:02d}-{val_loss:.2f}.keras"}, {"filepath": "best.keras", "save_best_only": True},
             {"filepath": "w-{epoch}.weights.h5", "save_weights_only": True},
             {"filepath": "best.keras", "save_best_only": True, "initial_value_threshold": 0.72},
             {"filepath": "b-{epoch}-{batch:03d}-{loss:.3e}.keras", "save_freq": 5},
             {"filepath": "{{x}}-{val_loss:8.3f}-{epoch:>4}.keras"}, {"filepath": "{val_loss}-{loss:g}.keras"},
             {"filepath": "deep/er/{epoch}.keras", "save_best_only": True, "mode": "max", "monitor": "loss"},
             {"filepath": "none.keras", "save_best_only": True, "monitor": "nothing", "mode": "min"}]
    for args in check:
        yield 0.01, [{"ModelCheckpoint": dict(args, verbose=1)}], plain
    odd = [[["accuracy", 1.0], ["loss", 1e-5]], [["accuracy", 0.5], ["loss", 1e16], ["val_loss", 0.25]],
           [["loss", 123456789.0]], [["accuracy", 1e-4], ["loss", float(np.float32(0.1))]]]
    names = [[["a,b", 0.5], ['q"uote', 1.0], ["semi;colon", 2.0]], [["a,b", 0.25], ["val_x", 1.0]]]
    for args, logs, files in [({}, plain, {}), ({"separator": ";"}, odd, {}), ({}, odd, {}), ({}, names, {}),
                              ({"separator": ";"}, names, {}), ({"append": True}, odd, {}),
                              ({"append": True}, plain, {"log.csv": "epoch,loss\r\n0,1.5\r\n"}),
                              ({"append": True}, plain, {"log.csv": ""}), ({}, plain, {"log.csv": "old"})]:
        yield 0.01, [{"CSVLogger": dict(args, filename="log.csv")}], logs, files
    # The order decides what a table sees of the rate.
    yield 0.01, [{"CSVLogger": {"filename": "before.csv"}}, {"ReduceLROnPlateau": {"patience": 1, "verbose": 1}},
                 {"CSVLogger": {"filename": "after.csv"}}, {"EarlyStopping": {"patience": 3, "verbose": 1}}], plain
    draw = np.random.default_rng(0)
    for seed in range(60):
        values = losses(seed, 25)
        accuracy = losses(seed + 1000, 25, 0.0625)
        yield 0.1, [
            {"LearningRateScheduler": {"schedule": "=lr * 0.97", "verbose": 1}} if seed % 5 == 0 else
            {"ReduceLROnPlateau": {"patience": int(draw.integers(0, 4)), "cooldown": int(draw.integers(0, 3)),
                                   "factor": float(draw.choice([0.1, 0.5, 0.9])), "verbose": 1,
                                   "min_delta": float(draw.choice([1e-4, 0.25, 0.0])),
                                   "min_lr": float(draw.choice([0.0, 0.02]))}},
            {"ModelCheckpoint": {"filepath": "m-{epoch}-{val_accuracy:.3f}.keras", "monitor": "val_accuracy",
                                 "mode": "max", "save_best_only": bool(draw.integers(0, 2)), "verbose": 1}},
            {"EarlyStopping": {"patience": int(draw.integers(0, 6)), "verbose": 1,
                               "min_delta": float(draw.choice([0.0, 0.25])),
                               "restore_best_weights": bool(draw.integers(0, 2)),
                               "start_from_epoch": int(draw.integers(0, 4))}},
            {"CSVLogger": {"filename": "log.csv"}}], epochs(values, accuracy)


def main():
    out = []
    for given in cases():
        rate, callbacks, logs, files = (*given, {})[:4]
        out.append(record({"rate": rate, "callbacks": callbacks, "logs": logs, "files": files}))
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in out) + "\n]\n")
    print(f"{len(out)} cases in {OUT}")


if __name__ == "__main__":
    main()
