"""Sizes of the workloads of models.py."""
import re
import subprocess
import typing


class Gpt(typing.NamedTuple):
    depth: int
    width: int
    heads: int
    context: int
    batch: int
    classes: int
    bias: bool
    gelu: str  # "none": the exact form, or "tanh"
    steps: int  # of a turn
    goal_torch: float
    goal_keras: float

    def product_flops(self):
        """Of a step: all products, and attention's causal half, forward and backward."""
        parameters = self.depth * 12 * self.width ** 2 + self.classes * self.width
        attention = self.depth * self.context * self.width
        return (6 * parameters + 6 * attention) * self.batch * self.context


class Attention(typing.NamedTuple):
    batch: int
    heads: int
    context: int
    head_size: int
    steps: int
    goal_torch: float

    def product_flops(self):
        """Of the causal half: 2 products forward and 5 backward."""
        return 7 * self.batch * self.heads * self.context ** 2 * self.head_size


class Images(typing.NamedTuple):
    """ResNet-50 as keras.applications has it, with SGD and momentum."""
    batch: int
    size: int
    steps: int
    goal_torch: float
    goal_keras: float
    classes: int = 10

    def product_flops(self):
        """Of a step: 4.09e9 multiply-adds of an image of 224 x 224, forward, and twice as many backward."""
        return 3 * 2 * 4.09e9 * (self.size / 224) ** 2 * self.batch

    def shape(self):
        return [self.size, self.size, 3]

    def yaml(self):
        from bench import ROOT
        config = subprocess.run([ROOT / "build/release/app/meshtrain", "init", "resnet50"], check=True,
                                capture_output=True, text=True).stdout
        config = re.sub(r"^(data:\n(?:[ ].*\n)+|fit:.*\n)", "", config, flags=re.M)
        config = re.sub(r"size: 224 ", f"size: {self.size} ", config)
        return re.sub(r"classes: 1000\b", f"classes: {self.classes}", config)


MODELS = {
    "nano": Gpt(4, 128, 4, 64, 12, 65, False, "none", 60, 1.5, 3.0),    # nanoGPT's example for a CPU
    "char": Gpt(6, 384, 6, 256, 64, 65, False, "none", 2, 1.5, 3.0),    # its character GPT
    "gpt2": Gpt(12, 768, 12, 256, 4, 50257, True, "tanh", 2, 1.2, 0.0),  # GPT-2 124M
}

class Recurrent(typing.NamedTuple):
    """A recurrent layer of Keras' arguments over random floats, its last output to classes."""
    layer: str
    batch: int
    context: int
    width: int  # of the inputs, and units
    steps: int
    goal_torch: float
    goal_keras: float
    classes: int = 10

    def product_flops(self):
        """Of a step, with no gradient of the inputs."""
        gates = 4 if self.layer == "LSTM" else 3
        return 2 * (2 + 3) * self.batch * self.context * gates * self.width ** 2

    def shape(self):
        return [self.context, self.width]

    def yaml(self):
        return f"""model:
  layers:
    - Input: {{name: x, shape: {self.shape()}}}
    - {self.layer}: {{name: cells, units: {self.width}}}
    - Dense: {{name: logits, units: {self.classes}}}
compile: {{optimizer: {{SGD: {{learning_rate: 0.01}}}}, loss: {{SparseCategoricalCrossentropy: {{from_logits: true}}}}}}
"""


RECURRENT = {
    "lstm": Recurrent("LSTM", 64, 128, 256, 4, 2.0, 3.0),
    "gru": Recurrent("GRU", 64, 128, 256, 4, 2.0, 3.0),
}
IMAGES = {"resnet50": Images(32, 64, 2, 1.5, 3.0), "tiny": Images(32, 32, 4, 1.5, 3.0)}
ATTENTION = {"attention": Attention(1, 12, 1024, 64, 20, 1.3)}
WORKLOADS = MODELS | RECURRENT | IMAGES | ATTENTION
