"""Expressions of keras.ops, which layers.py and operations.py evaluate as Python: x, x1, x2 are tensors.

They are the functions of Lambda layers in meshtrain. Inputs lie in (-2, 2); none is at a kink.
"""
import keras
import numpy as np

ONE = [
    # slices
    "x[:, 1]", "x[:, 1:, ::2]", "x[..., -1]", "x[:, None, 2:4, 1:-1]", "x[:, ::-1, 4:0:-2]", "x[:, -2:][..., 0]",
    # element by element
    "-x", "absolute(x)", "exp(x)", "expm1(x)", "log(square(x) + 1.5)", "log1p(square(x))", "log2(x * x + 1)",
    "log10(x * x + 1)", "square(x)", "sqrt(x * x + 0.5)", "rsqrt(x * x + 0.5)", "reciprocal(x * x + 0.5)",
    "sign(x) * x", "sin(x)", "cos(x)", "tan(x / 2)", "sinh(x)", "cosh(x)", "tanh(x)", "erf(x)", "floor(x * 4) + x",
    "ceil(x * 4) + x", "round(x * 4) + x",
    "exp2(x)", "arcsinh(x)", "arccosh(x * x + 1.5)", "arctanh(x / 3)", "deg2rad(x)", "rad2deg(x)", "trunc(x * 4) + x",
    "nan_to_num(x)", "x * ones_like(x) + zeros_like(x) + full_like(x, 2)", "stop_gradient(x) * x",
    # with numbers
    "x + 2", "1 - x", "x * 0.5", "1 / (x * x + 1)", "x / 3", "divide(x, 4.0)", "x ** 2", "power(x, 3)",
    "(x * x + 0.1) ** 0.5", "2.0 ** x", "(x * 4) % 1.5", "mod(x * 3, -0.7)", "(x * 5) // 2 + x", "maximum(x, 0.1)",
    "minimum(0.3, x)", "clip(x, -0.2, 0.4)", "x * [0.5, 1, 1.5, 2, -1]", "2 - x * (3 - 1) ** 2 / 4",
    # activations
    "sigmoid(x)", "softmax(x, axis=1)", "log_softmax(x)", "relu(x)", "relu6(x * 5)", "gelu(x)",
    "gelu(x, approximate=False)", "silu(x)", "leaky_relu(x, negative_slope=0.1)", "elu(x)", "celu(x, alpha=0.5)",
    "selu(x)", "glu(x[..., :4])", "log_sigmoid(x)", "hard_sigmoid(x)", "hard_silu(x)", "hard_tanh(x)",
    "softplus(x)", "softsign(x)", "sparse_plus(x)", "sparse_sigmoid(x)", "squareplus(x, b=2)",
    "soft_shrink(x, threshold=0.3)", "hard_shrink(x)", "tanh_shrink(x)", "threshold(x, 0.1, -0.5)",
    # reductions
    "mean(x, axis=(1, 2), keepdims=True) + x", "x - mean(x, axis=0, keepdims=True)", "sum(x, axis=-1)",
    "x / (sum(x * x) + 1)", "max(x, axis=1)", "min(x, axis=2, keepdims=True)", "amax(x, axis=-1)", "amin(x, axis=1)",
    "var(x, axis=1)", "std(x, axis=-1, keepdims=True)", "prod(x + 1, axis=-1)", "logsumexp(x, axis=1)",
    "norm(x, axis=-1)", "norm(x, ord=1, axis=1)", "normalize(x, axis=-1)", "cumsum(x, axis=1)",
    "x * count_nonzero(x > 0, axis=1)[:, None]", "average(x, axis=1)", "sort(x, axis=1)",
    "x * cast(argsort(x, axis=-1), 'float32')", "top_k(x, 3)[0]", "x[..., :2] * cast(top_k(x, 2)[1], 'float32')",
    "x * argmax(x, axis=-1, keepdims=True)", "x * argmin(x, axis=-1, keepdims=True)", "x * cast(x > 0, 'int32')",
    "where(logical_and(any(x > 1, axis=1), all(x < 1.9, axis=1)), x[:, 0], 2 * x[:, 1])",
    # shapes
    "reshape(x, (-1, 10, 2))", "ravel(x)[:5] * x", "transpose(x, (0, 2, 1))", "swapaxes(x, 1, -1)",
    "moveaxis(x, 1, 2)", "squeeze(expand_dims(x, 2) * 2, 2)", "flip(x, axis=1)", "tile(x, (1, 2, 1))",
    "repeat(x, 2, axis=2)", "pad(x, ((0, 0), (1, 2), (0, 1)))", "take(x, [0, 2, -1], axis=-1)",
    "take(x, 1, axis=1)", "split(x, 2, axis=1)[1]", "split(x, [1, 4], axis=2)[1]", "unstack(x, axis=2)[-1]",
    "roll(x, 2, axis=1)", "roll(x, -1, axis=2)",
    "diff(x, axis=1)", "diff(x, 2, axis=-1)", "pad(x, ((0, 0), (2, 1), (0, 0)), mode='reflect')",
    "pad(x, ((0, 0), (1, 2), (2, 1)), mode='symmetric')", "pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=1.5)",
    "tril(x)", "triu(x, k=1)", "space_to_depth(x[:, :, :4, None], 2)",
    "depth_to_space(x[:, :2, None, :4], 2)",
    "depth_to_space(x[:, :, :4, None][:, :4], 2, data_format='channels_first')",
    "one_hot(argmax(x, axis=-1), 5) * x",
    # conditions
    "where(isfinite(1 / floor(absolute(x))), x, 0.5)", "where(logical_not(x > 0.1), x, 2 * x)",
    "where(isnan(x), 1, x)", "where(isinf(x), 1, x)", "x if 2 > 1 else -x",
]
TWO = [
    "x1 + x2", "x1 - x2", "x1 * x2", "x1 / (x2 * x2 + 1)", "maximum(x1, x2)", "minimum(x1, x2)",
    "(x1 * x1 + 0.2) ** x2", "x1 // (x2 * x2 + 0.1) + x1", "x1 % (x2 * x2 + 0.1)", "logaddexp(x1, x2)",
    "x1 * x2[:, :1] + x2[:, :, :1]", "where(x1 > x2, x1, x2 * 2)",
    "hypot(x1, x2)", "hstack([x1, x2])", "x1 * mean(vstack([x1, x2]), axis=0, keepdims=True)", "dstack([x1, x2])",
    "append(x1, x2, axis=1)",
    "tensordot(x1, x2[0], axes=[[2], [1]])", "dot(x1, transpose(x2[0]))", "inner(x1, x2[0])",
    "tensordot(x1, x2[0], axes=2)", "vdot(x1, x2) * x1", "outer(x1[:, 0, 0], x2[0, 0])",
    "where(logical_or(x1 <= x2, not_equal(x1, x2)), x1, -x2)", "where(logical_xor(x1 >= x2, x1 == x2), x1, -x2)",
    "where(x1 != x2, x1, 0.0) + where(x1 < x2, x1, x2)", "concatenate([x1, x2, x1], axis=1)",
    "stack([x1, x2], axis=1)", "matmul(x1, transpose(x2, (0, 2, 1)))",
    "matmul(x1[:, None], transpose(x2, (0, 2, 1))[:, None])", "matmul(x1, x2[0, 0])",
    "einsum('bij,bkj->bik', x1, x2)", "einsum('...ij,...ij->...i', x1, x2)", "einsum('bij,bkj,bkl->bil', x1, x2, x1)",
    "einsum('bij,bkj', x1, x2)[0] + x1[:, :, :4]", "x1 * exp(-x2) + mean(x1, axis=-1, keepdims=True)",
    "(x1 - x2) * (x1 - x2) + x1 * x1", "x2 - x1",
]


class Arrays(dict):
    """Functions of keras.ops by name, for eval()."""

    def __missing__(self, name):
        return getattr(keras.ops, name)


def function_of(expression):
    def function(*tensors):
        names = Arrays({f"x{i + 1}": tensor for i, tensor in enumerate(tensors)})
        if len(tensors) == 1:
            names["x"] = tensors[0]
        # Keras takes tables of numbers as arrays.
        text = expression.replace("[0.5, 1, 1.5, 2, -1]", "table")
        names["table"] = np.array([0.5, 1, 1.5, 2, -1], str(tensors[0].dtype))
        return eval(text, {"__builtins__": {}}, names)

    return function

