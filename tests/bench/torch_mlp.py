#!/usr/bin/env python3
"""PyTorch's side of the step benchmark: eager training steps of the reference models on the CPU.

Reads commands from standard input, one a line, and answers each with one line:

  run WORKLOAD STEPS    ->  US <median microseconds a step>
  first WORKLOAD        ->  LOSS <loss of one step>

Steps are timed in CHUNKS equal chunks and the median chunk is reported, so that a neighbour on the
machine spoils a chunk, not the figure. Data lies in memory as ready batches; what is timed is
zero_grad, forward, loss, backward, optimizer, as a training loop has them.

  a16 a64 a512   784-200-10, dropout 0.4, softmax, mse, RMSprop(1e-3, 0.9, 1e-7), batch 16, 64, 512
  c64            the guide's convnet (torch_convnet.py), cross-entropy from logits, Adam as b64, batch 64
  b64            784-256-256-10, cross-entropy from logits, Adam(1e-3, 0.9, 0.999, 1e-7), batch 64
"""
import argparse
import statistics
import sys
import time

import torch
from torch import nn

import torch_convnet

CHUNKS = 10
BATCHES = 8  # distinct batches that the loop cycles through


class Workload:
    def __init__(self, name, foreach):
        self.is_a, batch = name[0] == "a", int(name[1:])
        torch.manual_seed(1)
        if self.is_a:
            self.model = nn.Sequential(nn.Linear(784, 200, bias=False), nn.ReLU(), nn.Dropout(0.4),
                                       nn.Linear(200, 10), nn.Softmax(dim=1))
            self.loss = nn.MSELoss()
            self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3, alpha=0.9, eps=1e-7,
                                                 foreach=foreach)
        else:
            self.model = torch_convnet.convnet() if name[0] == "c" else nn.Sequential(
                nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
            self.loss = nn.CrossEntropyLoss()
            trained = [p for p in self.model.parameters() if p.requires_grad]
            self.optimizer = torch.optim.Adam(trained, lr=1e-3, betas=(0.9, 0.999), eps=1e-7,
                                              foreach=foreach)
        x = torch_convnet.images(BATCHES, batch) if name[0] == "c" else torch.rand(BATCHES, batch, 784)
        labels = torch.randint(0, 10, (BATCHES, batch))
        y = nn.functional.one_hot(labels, 10).float() if self.is_a else labels
        self.batches = list(zip(x.unbind(0), y.unbind(0)))

    def step(self, index):
        x, y = self.batches[index % BATCHES]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
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
    parser.add_argument("--foreach", action="store_true", help="multi-tensor optimizer")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    workloads = {}
    for line in sys.stdin:
        command, name, *rest = line.split()
        if name not in workloads:
            workloads[name] = Workload(name, arguments.foreach)
            if command == "run":
                workloads[name].median_us(2 * CHUNKS)  # pages touched, caches of primitives filled
        if command == "run":
            print(f"US {workloads[name].median_us(int(rest[0])):.2f}", flush=True)
        else:
            print(f"LOSS {workloads[name].step(0).item():.6g}", flush=True)


if __name__ == "__main__":
    main()
