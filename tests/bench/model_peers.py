#!/usr/bin/env python3
"""Peers of models.py: training steps of small GPTs, recurrent layers and a ResNet, and attention, by PyTorch or Keras on JAX.

  model_peers.py torch|keras WORKLOAD --threads N [--compile] [--channels-last]
  model_peers.py torch WORKLOAD --device cuda [--bf16] [--compile]     language models only

Reads lines "run STEPS" and answers "US x", the median time of a step in microseconds. Models are nanoGPT's: no biases
in `nano` and `char`, tied head, AdamW, gradients clipped to norm 1. Attention is F.scaled_dot_product_attention, or
Keras' fused path.
"""
import argparse
import os
import statistics
import sys
import time

from model_workloads import ATTENTION, IMAGES, MODELS, RECURRENT, WORKLOADS


def torch_model(size, device):
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_a = nn.LayerNorm(size.width, bias=size.bias)
            self.qkv = nn.Linear(size.width, 3 * size.width, bias=size.bias)
            self.project = nn.Linear(size.width, size.width, bias=size.bias)
            self.norm_b = nn.LayerNorm(size.width, bias=size.bias)
            self.up = nn.Linear(size.width, 4 * size.width, bias=size.bias)
            self.down = nn.Linear(4 * size.width, size.width, bias=size.bias)

        def forward(self, x):
            b, t, e = x.shape
            q, k, v = (z.view(b, t, size.heads, e // size.heads).transpose(1, 2)
                       for z in self.qkv(self.norm_a(x)).split(e, dim=2))
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(o.transpose(1, 2).reshape(b, t, e))
            return x + self.down(F.gelu(self.up(self.norm_b(x)), approximate=size.gelu))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(size.classes, size.width)
            self.positions = nn.Embedding(size.context, size.width)
            self.blocks = nn.ModuleList(Block() for _ in range(size.depth))
            self.norm = nn.LayerNorm(size.width, bias=size.bias)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.view(-1, size.classes), targets.view(-1))

    torch.manual_seed(1)
    model = Gpt().to(device)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.02)
    ids = torch.randint(0, size.classes, (8, size.batch, size.context + 1), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    return model, ids, optimizer


def torch_recurrent_step(size, compiles):
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = getattr(nn, size.layer)(size.width, size.width, batch_first=True)
            self.logits = nn.Linear(size.width, size.classes)

        def forward(self, x):
            return self.logits(self.cells(x)[0][:, -1])

    model = Model()
    forward = torch.compile(model) if compiles else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.rand(8, size.batch, *size.shape())
    y = torch.randint(0, size.classes, (8, size.batch))

    def step(index):
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(forward(x[index % 8]), y[index % 8]).backward()
        optimizer.step()
    return step


def torch_resnet50(classes):
    """Strides are in the first convolution of a block, as in keras.applications."""
    from torch import nn

    def unit(inputs, outputs, kernel, stride=1):
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2), nn.BatchNorm2d(outputs, eps=1.001e-5)]

    class Block(nn.Module):
        def __init__(self, inputs, filters, stride):
            super().__init__()
            self.main = nn.Sequential(*unit(inputs, filters, 1, stride), nn.ReLU(), *unit(filters, filters, 3), nn.ReLU(),
                                      *unit(filters, 4 * filters, 1))
            is_same = inputs == 4 * filters and stride == 1
            self.short = nn.Identity() if is_same else nn.Sequential(*unit(inputs, 4 * filters, 1, stride))

        def forward(self, x):
            return nn.functional.relu(self.main(x) + self.short(x))

    layers = [*unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for index in range(count):
            filters = 64 * 2 ** stage
            layers.append(Block(inputs, filters, 2 if index == 0 and stage > 0 else 1))
            inputs = 4 * filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def torch_images_step(size, compiles, is_channels_last):
    import torch
    memory = torch.channels_last if is_channels_last else torch.contiguous_format
    model = torch_resnet50(size.classes).to(memory_format=memory)
    forward = torch.compile(model) if compiles else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = [torch.rand(size.batch, 3, size.size, size.size).to(memory_format=memory) for _ in range(8)]
    y = torch.randint(0, size.classes, (8, size.batch))

    def step(index):
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(forward(x[index % 8]), y[index % 8]).backward()
        optimizer.step()
    return step


def torch_step(arguments):
    import torch
    torch.set_num_threads(arguments.threads)
    if arguments.workload in ATTENTION:
        import torch.nn.functional as F
        size = ATTENTION[arguments.workload]
        shape = (size.batch, size.heads, size.context, size.head_size)
        q, k, v, g = (torch.randn(shape, requires_grad=True) for _ in range(4))
        attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        attend = torch.compile(attend) if arguments.compile else attend
        return lambda index: torch.autograd.grad(attend(q, k, v), (q, k, v), g)
    if arguments.workload in RECURRENT:
        return torch_recurrent_step(RECURRENT[arguments.workload], arguments.compile)
    if arguments.workload in IMAGES:
        return torch_images_step(IMAGES[arguments.workload], arguments.compile, arguments.channels_last)
    size = MODELS[arguments.workload]
    if arguments.batch:
        size = size._replace(batch=arguments.batch)
    if arguments.context:
        size = size._replace(context=arguments.context)
    torch.set_float32_matmul_precision("high")  # as meshtrain's default on a GPU
    model, ids, optimizer = torch_model(size, arguments.device)
    forward = torch.compile(model) if arguments.compile else model

    def step(index):
        batch = ids[index % len(ids)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.bf16):
            loss = forward(batch[:, :-1], batch[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return step


def keras_step(arguments):
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import keras
    import numpy as np
    if arguments.workload in ATTENTION:
        size = ATTENTION[arguments.workload]
        rng = np.random.default_rng(1)
        q, k, v, g = (jax.numpy.asarray(rng.standard_normal((size.batch, size.context, size.heads, size.head_size)),
                                        dtype="float32") for _ in range(4))

        def gradients(q, k, v):
            attend = lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True)
            return jax.vjp(attend, q, k, v)[1](g)
        compiled = jax.jit(gradients)
        return lambda index: jax.block_until_ready(compiled(q, k, v))
    layers = keras.layers
    if arguments.workload in RECURRENT | IMAGES:
        size = WORKLOADS[arguments.workload]
        if arguments.workload in IMAGES:
            model = keras.applications.ResNet50(weights=None, input_shape=size.shape(), classes=size.classes)
            model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="sparse_categorical_crossentropy")
        else:
            model = keras.Sequential([keras.Input(size.shape()), getattr(layers, size.layer)(size.width),
                                      layers.Dense(size.classes)])
            model.compile(optimizer=keras.optimizers.SGD(0.01),
                          loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        rng = np.random.default_rng(1)
        x = rng.random((8, size.batch, *size.shape()), dtype="float32")
        y = rng.integers(0, size.classes, (8, size.batch))
        return lambda index: model.train_on_batch(x[index % 8], y[index % 8])
    size = MODELS[arguments.workload]
    table = layers.ReversibleEmbedding(size.classes, size.width)
    inputs = keras.Input((size.context,), dtype="int32")
    x = layers.Add()([table(inputs), layers.Embedding(size.context, size.width)(keras.ops.arange(size.context)[None])])
    for _ in range(size.depth):
        h = layers.LayerNormalization(epsilon=1e-5, center=size.bias)(x)
        h = layers.MultiHeadAttention(size.heads, size.width // size.heads, use_bias=size.bias)(
            h, h, use_causal_mask=True)
        x = layers.Add()([x, h])
        h = layers.LayerNormalization(epsilon=1e-5, center=size.bias)(x)
        gelu = lambda y: keras.activations.gelu(y, approximate=size.gelu == "tanh")
        h = layers.Dense(4 * size.width, activation=gelu, use_bias=size.bias)(h)
        x = layers.Add()([x, layers.Dense(size.width, use_bias=size.bias)(h)])
    x = layers.LayerNormalization(epsilon=1e-5, center=size.bias)(x)
    model = keras.Model(inputs, table(x, reverse=True))
    model.compile(optimizer=keras.optimizers.AdamW(1e-3, weight_decay=0.1, beta_2=0.99, global_clipnorm=1.0),
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ids = np.random.default_rng(1).integers(0, size.classes, (8, size.batch, size.context + 1)).astype("int32")

    def step(index):
        batch = ids[index % len(ids)]
        return model.train_on_batch(batch[:, :-1], batch[:, 1:])
    return step


def seconds_of_step(step, steps, device):
    """The median; on a GPU, which is given the next step before the last is done, the mean."""
    if device == "cuda":
        import torch
        step(0)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for index in range(steps):
            step(index)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps
    times = []
    for index in range(steps):
        start = time.perf_counter()
        step(index)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=("torch", "keras"))
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--channels-last", action="store_true", help="images of PyTorch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bf16", action="store_true", help="under autocast")
    parser.add_argument("--batch", type=int, help="another one than the workload's")
    parser.add_argument("--context", type=int, help="another one than the workload's")
    arguments = parser.parse_args()
    step = (torch_step if arguments.framework == "torch" else keras_step)(arguments)
    step(0)
    for line in sys.stdin:
        words = line.split()
        if len(words) != 2 or words[0] != "run":
            raise SystemExit(f"expected 'run STEPS', read {line!r}")
        print(f"US {1e6 * seconds_of_step(step, int(words[1]), arguments.device):.1f}", flush=True)


if __name__ == "__main__":
    main()
