"""What the GPU benchmark trains: the models, their data and their first weights, one place for all sides.

Weights are named as meshtrain and Keras name them and lie as Keras has them (dense: inputs x units,
convolution: height x width x in x out). No epsilon of an optimizer is large enough to matter, because
PyTorch and Keras do not put it in the same place.
"""
import dataclasses

import numpy as np

CLASSES = 10
BATCHES = 8  # distinct batches that peers, and the comparison of losses, cycle through
CHECK_STEPS = 32
SMALL_GOALS = (40, 25, 12)  # microseconds a step, one H200


@dataclasses.dataclass(frozen=True)
class Dense:
    name: str
    inputs: int
    units: int
    activation: str = "linear"
    bias: bool = True


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    what: str
    batch: int
    shape: tuple  # of one sample
    layers: str  # YAML
    optimizer: str  # adam, rmsprop, sgd
    loss: str  # mse of one-hot labels, or cross-entropy from logits
    samples: int  # of meshtrain's data set
    flops: float  # of a step's products
    goals_us: tuple = ()  # to accept, target, stretch
    bf16: bool = False


A_LAYERS = (Dense("d1", 784, 200, "relu", bias=False), Dense("d2", 200, CLASSES, "softmax"))
B_LAYERS = (Dense("d1", 784, 256, "relu"), Dense("d2", 256, 256, "relu"), Dense("d3", 256, CLASSES))
WIDE = 4096
WIDE_LAYERS = tuple(Dense(f"d{i}", WIDE, WIDE, "relu") for i in range(1, 5)) + (Dense("d5", WIDE, CLASSES),)
# name, in, out, size, strides, padding, bias; BatchNormalization without scale and ReLU follow each.
CONVOLUTIONS = (("conv1", 1, 12, 3, 1, "same", False), ("conv2", 12, 24, 6, 2, "valid", False),
                ("conv3", 24, 32, 6, 2, "same", True))
C_DENSE = (Dense("d1", 32, 256, "relu"), Dense("d2", 256, CLASSES))
BN_MOMENTUM, BN_EPSILON = 0.99, 1e-3
DROPOUT = {"a": 0.4, "b": 0.0, "c": 0.5, "w": 0.0}  # of the last layer's input, by the first letter
ADAM = {"learning_rate": 1e-3, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-10}
# Slow, so that rounding does not grow; its epsilon is inside the square root, as Keras has it.
RMSPROP = {"learning_rate": 1e-4, "rho": 0.9, "epsilon": 1e-20}
SGD = {"learning_rate": 1e-2}


def chunks(steps):
    """Of the equal parts that are timed, of which the median counts."""
    return 10 if steps >= 320 else 2


def dense_layers(name):
    return {"a": A_LAYERS, "b": B_LAYERS, "c": C_DENSE, "w": WIDE_LAYERS}[name[0]]


def _yaml(name, shape):
    lines = [f"    - Input: {{shape: {list(shape)}}}"]
    if name[0] == "c":
        lines.append("    - Rescaling: {scale: =1/255}")
        for layer, _, out, size, strides, padding, bias in CONVOLUTIONS:
            lines.append(f"    - Conv2D: {{name: {layer}, filters: {out}, kernel_size: {size}, strides: {strides}, "
                         f"padding: {padding}, use_bias: {str(bias).lower()}}}")
            lines.append(f"    - BatchNormalization: {{name: {layer}_bn, scale: false}}")
            lines.append("    - ReLU")
        lines.append("    - GlobalAveragePooling2D")
    dense = dense_layers(name)
    for layer in dense:
        if layer is dense[-1] and DROPOUT[name[0]]:
            lines.append(f"    - Dropout: {{name: drop, rate: {DROPOUT[name[0]]}}}")
        lines.append(f"    - Dense: {{name: {layer.name}, units: {layer.units}, activation: {layer.activation}, "
                     f"use_bias: {str(layer.bias).lower()}}}")
    return "\n".join(lines)


def _mlp(name, what, shape, batch, optimizer, loss, **more):
    # forward, gradient of the kernel, and of the input but for the first layer
    products = [2 * batch * layer.inputs * layer.units for layer in dense_layers(name)]
    return Workload(name, what, batch, shape, _yaml(name, shape), optimizer, loss,
                    flops=3 * sum(products) - products[0], **more)


def workloads(tiny=False):
    """{name: Workload}; `tiny` for a machine without a GPU, where only the programs are tried."""
    samples = 1024 if tiny else 60000
    a = "784-200-10, dropout, mse, RMSprop"
    made = [_mlp(f"a{batch}", f"{a}, batch {batch}", (784,), batch, "rmsprop", "mse", samples=samples,
                 goals_us=SMALL_GOALS) for batch in (16, 64, 512)]
    made.append(_mlp("b64", "784-256-256-10, cross-entropy, Adam, batch 64", (784,), 64, "adam",
                     "crossentropy", samples=samples, goals_us=SMALL_GOALS))
    shape = (28, 28, 1)
    made.append(Workload("c64", "convnet of Keras' guide, Adam, batch 64", 64, shape, _yaml("c64", shape), "adam",
                         "crossentropy", samples, flops=981e6,
                         goals_us=(200, 120, 80)))
    batch = 64 if tiny else 4096
    made.append(_mlp("wide", f"four layers 4096 wide, mixed bf16, SGD, batch {batch}", (WIDE,), batch, "sgd",
                     "crossentropy", samples=(2 if tiny else 8) * batch, bf16=True))
    return {w.name: w for w in made}


def config_text(w, data, initial_weights, epochs, dropout=True):
    """meshtrain's config of a workload; `data` is the YAML of its source."""
    optimizer = {"adam": ("Adam", ADAM), "rmsprop": ("RMSprop", RMSPROP), "sgd": ("SGD", SGD)}[w.optimizer]
    arguments = ", ".join(f"{key}: {value!r}" for key, value in optimizer[1].items())
    loss = "mse" if w.loss == "mse" else "{SparseCategoricalCrossentropy: {from_logits: true}}"
    layers = w.layers if dropout else w.layers.replace(f"rate: {DROPOUT[w.name[0]]}", "rate: 0.0")
    lines = ["version: 1", f"name: {w.name}", f"data: {{train: {data}, shuffle: {str(dropout).lower()}}}",
             "model:", "  layers:", layers,
             f"compile: {{loss: {loss}, optimizer: {{{optimizer[0]}: {{{arguments}}}}}}}",
             f"fit: {{batch_size: {w.batch}, epochs: {epochs}"
             + (f", initial_weights: {initial_weights}" if initial_weights else "") + "}",
             "checkpoint: {every: never}"]
    if w.bf16:
        lines.append("dtype_policy: mixed_bfloat16")
    return "\n".join(lines) + "\n"


def batches(w, count=BATCHES):
    """x (count, batch, ...), labels (count, batch): noisy prototypes of the classes, so that it learns."""
    rng = np.random.default_rng(7)
    prototypes = rng.random((CLASSES, *w.shape), dtype=np.float32)
    labels = rng.integers(0, CLASSES, (count, w.batch))
    x = 0.5 * prototypes[labels] + 0.5 * rng.random((count, w.batch, *w.shape), dtype=np.float32)
    return (255 * x if w.name[0] == "c" else x).astype(np.float32), labels.astype(np.int32)


def targets(w, labels):
    return np.eye(CLASSES, dtype=np.float32)[labels] if w.loss == "mse" else labels


def first_weights(w):
    """{path: array}: Glorot's uniform kernels, zero biases, fresh statistics."""
    rng = np.random.default_rng(11)

    def glorot(shape, fan_in, fan_out):
        limit = (6.0 / (fan_in + fan_out)) ** 0.5
        return rng.uniform(-limit, limit, shape).astype(np.float32)

    weights = {}
    if w.name[0] == "c":
        for name, inputs, out, size, _, _, bias in CONVOLUTIONS:
            weights[f"{name}/kernel"] = glorot((size, size, inputs, out), size * size * inputs, size * size * out)
            if bias:
                weights[f"{name}/bias"] = np.zeros(out, np.float32)
            weights[f"{name}_bn/beta"] = np.zeros(out, np.float32)
            weights[f"{name}_bn/moving_mean"] = np.zeros(out, np.float32)
            weights[f"{name}_bn/moving_variance"] = np.ones(out, np.float32)
    for layer in dense_layers(w.name):
        weights[f"{layer.name}/kernel"] = glorot((layer.inputs, layer.units), layer.inputs, layer.units)
        if layer.bias:
            weights[f"{layer.name}/bias"] = np.zeros(layer.units, np.float32)
    return weights
