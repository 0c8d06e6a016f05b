"""PyTorch's side of workload c64: the convnet of Keras' guide to distributed training with JAX.

Used by torch_mlp.py, which tries both memory formats. `same` padding of these sizes is 1 and 2 on both sides.
"""
import torch
from torch import nn


def normalization(channels):
    layer = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
    layer.weight.requires_grad_(False)  # scale=False
    return layer


class Rescaling(nn.Module):
    def forward(self, x):
        return x * (1 / 255)


def convnet():
    return nn.Sequential(
        Rescaling(),
        nn.Conv2d(1, 12, 3, padding=1, bias=False), normalization(12), nn.ReLU(),
        nn.Conv2d(12, 24, 6, stride=2, padding=2, bias=False), normalization(24), nn.ReLU(),
        nn.Conv2d(24, 32, 6, stride=2, padding=2, bias=False), normalization(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))


def images(count, batch):
    return 255 * torch.rand(count, batch, 1, 28, 28)
