"""The layers that Keras' own tests build and call, as cases: comparison.py sends them through meshtrain.

`collect(folder)` runs the tests of the layers in a checkout of Keras (of the version that is installed). Each call of
a layer of keras.layers with arrays is a case, and so are the arguments of `run_layer_test`. A case is the layer's
configuration, the structure of its call, and the arrays. Equal ones are one case.
"""
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import signal
import sys
import unittest

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
import numpy as np
from keras.src import testing, tree
from keras.src.trainers.trainer import Trainer

# Tests that call no layer in a way that a saved model could hold, or only slowly.
SKIPPED = ("quantiz", "lora", "int8", "int4", "float8", "fp8", "gptq", "awq", "tf_data", "tfdata", "sparse", "ragged",
           "legacy", "torch", "tensorflow", "benchmark", "flash", "large", "numerical_stability", "from_graph")
FOLDERS = {"activations", "attention", "convolutional", "core", "merging", "normalization", "pooling", "preprocessing",
           "regularization", "reshaping", "rnn"}
SECONDS = 20  # of the processor, for one test


class Skipped(Exception):
    pass


class Case:
    """One call of a layer: `args` and `kwargs` hold arrays where the model has inputs."""

    def __init__(self, test, layer, args, kwargs):
        self.test, self.class_name = test, type(layer).__name__
        self.config = layer.get_config()
        self.cls = type(layer)
        self.args, self.kwargs = args, kwargs

    def key(self):
        config = {name: value for name, value in self.config.items() if name != "name"}
        shapes = tree.map_structure(lambda a: f"{a.shape}{a.dtype}" if is_array(a) else repr(a), (self.args, self.kwargs))
        values = [a.tobytes() for a in tree.flatten(self.args) if is_array(a) and a.dtype.kind in "iub"]
        text = self.class_name + json.dumps(keras.saving.serialize_keras_object(config), default=repr, sort_keys=True)
        return hashlib.sha256((text + repr(shapes)).encode() + b"".join(values)).hexdigest()


def is_array(value):
    return isinstance(value, np.ndarray)


def is_keras_layer(layer):
    return getattr(keras.layers, type(layer).__name__, None) is type(layer) and not isinstance(layer, keras.Model)


def as_numpy(value):
    if isinstance(value, (jax.Array, np.ndarray, np.generic)) and not isinstance(value, jax.core.Tracer):
        return np.asarray(value)
    return value


class Recorder:
    """Takes the place of Layer.__call__ and of run_layer_test while the tests run."""

    def __init__(self):
        self.cases, self.unusable, self.depth, self.test = {}, {}, 0, ""

    def add(self, layer, args, kwargs):
        kwargs = {name: value for name, value in kwargs.items() if name not in ("training", "mask") and value is not None}
        args, kwargs = tree.map_structure(as_numpy, (tuple(args), kwargs))
        leaves = tree.flatten((args, kwargs))
        if not any(is_array(leaf) for leaf in leaves) or any(hasattr(leaf, "aval") for leaf in leaves):
            return  # symbolic, traced, or plain lists
        try:
            case = Case(self.test, layer, args, kwargs)
            self.cases.setdefault(case.key(), case)
        except Exception as error:  # a configuration that is not to be saved
            self.unusable[f"{type(layer).__name__} of {self.test}"] = f"{type(error).__name__}: {str(error)[:100]}"

    def call(self, original):
        def wrapped(layer, *args, **kwargs):
            if self.depth == 0 and is_keras_layer(layer):
                self.add(layer, args, kwargs)
            self.depth += 1
            try:
                return original(layer, *args, **kwargs)
            finally:
                self.depth -= 1

        return wrapped

    def layer_test(self, _, layer_cls, init_kwargs, input_shape=None, input_dtype=None, input_data=None, call_kwargs=None,
                   **others):
        if others.get("input_sparse") or others.get("input_ragged"):
            raise Skipped
        layer = layer_cls(**(init_kwargs or {}))
        if not is_keras_layer(layer):
            return
        given = input_data
        if given is None and input_shape is not None:
            rng = np.random.default_rng(len(self.cases))
            types = input_dtype or tree.map_shape_structure(lambda _: "float32", input_shape)
            given = self.drawn(rng, input_shape, types)
        if isinstance(given, dict):
            self.add(layer, (), {**given, **(call_kwargs or {})})
        elif given is not None:
            self.add(layer, (given,), call_kwargs or {})

    def drawn(self, rng, shape, dtype):
        if isinstance(shape, dict):
            return {name: self.drawn(rng, each, dtype[name] if isinstance(dtype, dict) else dtype)
                    for name, each in shape.items()}
        if isinstance(shape, list) or isinstance(shape[0], (tuple, list)):
            types = dtype if isinstance(dtype, (list, tuple)) else [dtype] * len(shape)
            return [self.drawn(rng, each, one) for each, one in zip(shape, types)]
        if "float" in dtype:
            return rng.normal(size=shape).astype(dtype if dtype != "bfloat16" else "float32")
        return rng.integers(0, 2, shape).astype(dtype)


def alarm(*_):
    raise TimeoutError


def refuse_training(*_, **__):
    raise Skipped


def run_test(test):
    """Its calls are what counts: it may fail, or take too long."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            test.run(unittest.TestResult())
    except (Exception, TimeoutError):
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def tests_of(suite):
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from tests_of(entry)
        else:
            yield entry


def collect(checkout, words=()):
    """(cases in the order of the tests, calls of layers that have no configuration)."""
    recorder = Recorder()
    sys.path.append(str(checkout))  # some tests import its conftest.py
    signal.signal(signal.SIGPROF, alarm)
    patches = [(keras.Layer, "__call__", recorder.call(keras.Layer.__call__)),
               (testing.TestCase, "run_layer_test", lambda test, *args, **kwargs: recorder.layer_test(test, *args, **kwargs)),
               (Trainer, "fit", refuse_training)]
    originals = [getattr(owner, name) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        for path in sorted(pathlib.Path(checkout, "keras", "src", "layers").rglob("*_test.py")):
            if FOLDERS.isdisjoint(path.parts) or words and not any(word in path.name for word in words):
                continue
            spec = importlib.util.spec_from_file_location(path.stem, path)
            module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except ImportError as error:  # of another framework
                print(f"{path.name}: {error}")
                continue
            for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
                if not any(word in test.id().lower() for word in SKIPPED):
                    recorder.test, recorder.depth = test.id(), 0
                    run_test(test)
    finally:
        for (owner, name, _), value in zip(patches, originals):
            setattr(owner, name, value)
        keras.config.set_dtype_policy("float32")
        keras.config.set_image_data_format("channels_last")
    return list(recorder.cases.values()), recorder.unusable
