"""Sizes of the workloads of transformers.py."""
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


MODELS = {
    "nano": Gpt(4, 128, 4, 64, 12, 65, False, "none", 60, 1.5, 3.0),    # nanoGPT's example for a CPU
    "char": Gpt(6, 384, 6, 256, 64, 65, False, "none", 2, 1.5, 3.0),    # its character GPT
    "gpt2": Gpt(12, 768, 12, 256, 4, 50257, True, "tanh", 2, 1.2, 0.0),  # GPT-2 124M
}
ATTENTION = {"attention": Attention(1, 12, 1024, 64, 20, 1.3)}
