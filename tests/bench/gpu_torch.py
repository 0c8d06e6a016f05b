#!/usr/bin/env python3
"""PyTorch's side of the GPU benchmark, for one workload: gpu_torch.py WORKLOAD [--device cpu] [--tiny].

Reads one command a line and answers with one JSON object a line:

  modes                ["eager", ...], the ways this machine can run the step
  prepare MODE         {"losses": [...]} of the first CHECK_STEPS steps from the first weights, so that a
                       mode that does not train is seen; compiles, captures
  check                {"losses": [...]}, eager, without dropout, in full float32
  run MODE STEPS       {"us": microseconds a step}, the median of ten chunks
  first                {"loss": ...}, one eager step
  matmul               {"tflops": ...}, a large bf16 product on random data

Modes: eager (with the fused or multi-tensor optimizer); compile: forward, loss and the optimizer through
torch.compile; compile_ro: the same in mode "reduce-overhead"; compile_graph: the compiled step, backward
and optimizer included, captured whole in one CUDA graph. Batches are ready on the device; a graph has its
batch copied into place before each step, as PyTorch's recipe for graphs does.
"""
import argparse
import functools
import json
import statistics
import sys
import time

import torch
from torch import nn

import gpu_workloads as gw



def load_dense(layer, weights):
    made = nn.Linear(layer.inputs, layer.units, bias=layer.bias)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(weights[f"{layer.name}/kernel"].T.copy()))
        if layer.bias:
            made.bias.zero_()
    return made


class Scale(nn.Module):
    def forward(self, x):
        return x * (1 / 255)


def convolutions(weights):
    layers = [Scale()]
    for name, inputs, out, size, strides, padding, bias in gw.CONVOLUTIONS:
        # `same` of these sizes is symmetric: 28 by 3, and 12 by 6 in steps of 2
        pad = (size - strides + 1) // 2 if padding == "same" else 0
        conv = nn.Conv2d(inputs, out, size, stride=strides, padding=pad, bias=bias)
        with torch.no_grad():
            conv.weight.copy_(torch.from_numpy(weights[f"{name}/kernel"].transpose(3, 2, 0, 1).copy()))
            if bias:
                conv.bias.zero_()
        normalization = nn.BatchNorm2d(out, eps=gw.BN_EPSILON, momentum=1 - gw.BN_MOMENTUM)
        normalization.weight.requires_grad_(False)
        layers += [conv, normalization, nn.ReLU()]
    return layers + [nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def model_of(w, dropout):
    weights = gw.first_weights(w)
    layers = convolutions(weights) if w.name[0] == "c" else []
    dense = gw.dense_layers(w.name)
    for layer in dense:
        if layer is dense[-1] and dropout and gw.DROPOUT[w.name[0]]:
            layers.append(nn.Dropout(gw.DROPOUT[w.name[0]]))
        layers.append(load_dense(layer, weights))
        if layer.activation != "linear":
            layers.append(nn.ReLU() if layer.activation == "relu" else nn.Softmax(dim=1))
    return nn.Sequential(*layers)


class Step:
    """One way to make a training step, with its own weights."""

    def __init__(self, w, mode, device, dropout=True):
        self.w, self.mode, self.device = w, mode, device
        torch.manual_seed(1)
        self.model = model_of(w, dropout).to(device)
        x, labels = gw.batches(w)
        if w.name[0] == "c":
            x = x.transpose(0, 1, 4, 2, 3).copy()
        self.x = torch.from_numpy(x).to(device)
        self.y = torch.from_numpy(gw.targets(w, labels)).to(device)
        if w.loss != "mse":
            self.y = self.y.long()
        self.optimizer = self.make_optimizer(capturable=mode == "compile_graph")
        self.loss = self.make_loss()
        self.update = self.optimizer.step
        if mode.startswith("compile"):
            options = {"mode": "reduce-overhead"} if mode == "compile_ro" else {}
            self.loss = torch.compile(self.loss, **options)
            if mode != "compile_graph":
                self.update = torch.compile(lambda: self.optimizer.step(), **options)
        self.index = 0
        self.graph = None

    def make_optimizer(self, capturable):
        trained = [p for p in self.model.parameters() if p.requires_grad]
        on_gpu = self.device.startswith("cuda")
        if self.w.optimizer == "rmsprop":
            return torch.optim.RMSprop(trained, lr=gw.RMSPROP["learning_rate"], alpha=gw.RMSPROP["rho"],
                                       eps=gw.RMSPROP["epsilon"] ** 0.5, foreach=True,
                                       **({"capturable": True} if capturable and on_gpu else {}))
        if self.w.optimizer == "sgd":
            return torch.optim.SGD(trained, lr=gw.SGD["learning_rate"], fused=on_gpu or None)
        return torch.optim.Adam(trained, lr=gw.ADAM["learning_rate"], betas=(gw.ADAM["beta_1"], gw.ADAM["beta_2"]),
                                eps=gw.ADAM["epsilon"], fused=on_gpu or None, capturable=capturable and on_gpu)

    def make_loss(self):
        function = nn.MSELoss() if self.w.loss == "mse" else nn.CrossEntropyLoss()
        if not self.w.bf16:
            return lambda x, y: function(self.model(x), y)

        def mixed(x, y):
            with torch.autocast(self.device.split(":")[0], dtype=torch.bfloat16):
                output = self.model(x)
            return function(output.float(), y)
        return mixed

    def plain_step(self, x, y):
        if self.mode == "compile_ro":
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(x, y)
        loss.backward()
        self.update()
        return loss

    def capture(self):
        """The whole step as one graph, after warming up on another stream; weights go back to the first."""
        kept = [p.detach().clone() for p in self.model.state_dict().values()]
        self.static = self.x[0].clone(), self.y[0].clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.plain_step(*self.static)
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.captured_loss = self.plain_step(*self.static)
        with torch.no_grad():
            for value, first in zip(self.model.state_dict().values(), kept):
                value.copy_(first)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def step(self):
        i = self.index % gw.BATCHES
        self.index += 1
        if self.graph is None:
            return self.plain_step(self.x[i], self.y[i])
        self.static[0].copy_(self.x[i])
        self.static[1].copy_(self.y[i])
        self.graph.replay()
        return self.captured_loss

    def losses(self, count):
        if self.mode == "compile_graph":
            self.capture()
        return [float(self.step().item()) for _ in range(count)]

    def wait(self):
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()

    def median_us(self, steps):
        chunk = max(1, steps // gw.chunks(steps))
        times = []
        for _ in range(gw.chunks(steps)):
            self.wait()
            start = time.perf_counter()
            for _ in range(chunk):
                self.step()
            self.wait()
            times.append((time.perf_counter() - start) / chunk)
        return statistics.median(times) * 1e6


def set_precision(tf32):
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True  # its fastest algorithms


def matmul_tflops(device, tiny):
    n = 256 if tiny else 8192
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    times = []
    for _ in range(13):
        wait()
        start = time.perf_counter()
        a @ b
        wait()
        times.append(time.perf_counter() - start)
    return 2 * n**3 / statistics.median(times[3:]) / 1e12


class Server:
    def __init__(self, w, device, tiny):
        self.w, self.device, self.tiny = w, device, tiny

    @functools.cache
    def step_of(self, mode):
        return Step(self.w, mode, self.device)

    def answer(self, command, *rest):
        if command == "modes":
            graphs = ["compile_ro", "compile_graph"] if self.device.startswith("cuda") else []
            return ["eager", "compile", *graphs]
        if command == "prepare":
            return {"losses": self.step_of(rest[0]).losses(gw.CHECK_STEPS)}
        if command == "check":
            set_precision(tf32=False)
            losses = Step(self.w, "eager", self.device, dropout=False).losses(gw.CHECK_STEPS)
            set_precision(tf32=True)
            return {"losses": losses}
        if command == "run":
            return {"us": self.step_of(rest[0]).median_us(int(rest[1]))}
        if command == "first":
            return {"loss": self.step_of("eager").step().item()}
        if command == "matmul":
            return {"tflops": matmul_tflops(self.device, self.tiny)}
        raise ValueError(f"unknown command {command}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    set_precision(tf32=True)
    server = Server(gw.workloads(arguments.tiny)[arguments.workload], arguments.device, arguments.tiny)
    for line in sys.stdin:
        try:
            answer = server.answer(*line.split())
        except Exception as error:  # a mode that this PyTorch cannot do is a figure that is missing
            answer = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
