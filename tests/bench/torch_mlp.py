#!/usr/bin/env python3
"""PyTorch's side of the step benchmark: training steps of the reference models on the CPU.

Reads commands from standard input, one a line, and answers each with one line:

  run WORKLOAD STEPS    ->  US <median microseconds a step>
  first WORKLOAD        ->  LOSS <loss of one step>

Steps are timed in CHUNKS equal chunks and the median chunk is reported, so that a neighbour on the
machine spoils a chunk, not the figure. Data lies in memory as ready batches; what is timed is
zero_grad, forward, loss, backward, optimizer, as a training loop has them.

  a16 a64 a512   784-200-10, dropout 0.4, softmax, mse, RMSprop(1e-3, 0.9, 1e-7), batch 16, 64, 512
  c64            the guide's convnet (torch_convnet.py), cross-entropy from logits, Adam as b64, batch 64
  b64            784-256-256-10, cross-entropy from logits, Adam(1e-3, 0.9, 0.999, 1e-7), batch 64

Modes: plain, foreach and fused are eager steps with that kind of optimizer; compile puts forward, loss
and the optimizer through torch.compile; compile_fused the first two, beside the fused optimizer.
"""
import argparse
import logging
import statistics
import sys
import time

import torch
from torch import nn

import torch_convnet

CHUNKS = 10
BATCHES = 8  # distinct batches that the loop cycles through
MODES = ("plain", "foreach", "fused", "compile", "compile_fused")


class Workload:
    def __init__(self, name, mode, channels_last=False):
        self.is_a, batch = name[0] == "a", int(name[1:])
        torch.manual_seed(1)
        kind = {"fused": True} if "fused" in mode else {"foreach": mode != "plain"}
        if self.is_a:
            self.model = nn.Sequential(nn.Linear(784, 200, bias=False), nn.ReLU(), nn.Dropout(0.4),
                                       nn.Linear(200, 10), nn.Softmax(dim=1))
            self.loss = nn.MSELoss()
            self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3, alpha=0.9, eps=1e-7, **kind)
        else:
            self.model = torch_convnet.convnet() if name[0] == "c" else nn.Sequential(
                nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
            self.loss = nn.CrossEntropyLoss()
            trained = [p for p in self.model.parameters() if p.requires_grad]
            self.optimizer = torch.optim.Adam(trained, lr=1e-3, betas=(0.9, 0.999), eps=1e-7, **kind)
        x = torch_convnet.images(BATCHES, batch) if name[0] == "c" else torch.rand(BATCHES, batch, 784)
        labels = torch.randint(0, 10, (BATCHES, batch))
        y = nn.functional.one_hot(labels, 10).float() if self.is_a else labels
        if channels_last and name[0] == "c":
            self.model = self.model.to(memory_format=torch.channels_last)
            x = x.flatten(0, 1).to(memory_format=torch.channels_last).unflatten(0, (BATCHES, batch))
        self.batches = list(zip(x.unbind(0), y.unbind(0)))
        self.forward = lambda x, y: self.loss(self.model(x), y)
        self.update = lambda: self.optimizer.step()
        if mode.startswith("compile"):
            self.forward = torch.compile(self.forward)
            if mode == "compile":
                self.update = torch.compile(self.update)

    def step(self, index):
        x, y = self.batches[index % BATCHES]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(x, y)
        loss.backward()
        self.update()
        return loss

    def median_us(self, steps):
        chunk = max(1, steps // CHUNKS)
        times, index = [], 0
        for _ in range(CHUNKS):
            start = time.perf_counter()
            for _ in range(chunk):
                self.step(index)
                index += 1
            times.append((time.perf_counter() - start) / chunk)
        return statistics.median(times) * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1, help="torch.set_num_threads")
    parser.add_argument("--mode", choices=MODES, default="plain")
    parser.add_argument("--channels-last", action="store_true", help="the convnet's memory format")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.getLogger("torch").setLevel(logging.ERROR)  # torch.compile looks for a GPU
    workloads = {}
    for line in sys.stdin:
        command, name, *rest = line.split()
        if name not in workloads:
            workloads[name] = Workload(name, arguments.mode, arguments.channels_last)
            if command == "run":
                workloads[name].median_us(2 * CHUNKS)  # pages touched, caches of primitives filled
        if command == "run":
            print(f"US {workloads[name].median_us(int(rest[0])):.2f}", flush=True)
        else:
            print(f"LOSS {workloads[name].step(0).item():.6g}", flush=True)


if __name__ == "__main__":
    main()
