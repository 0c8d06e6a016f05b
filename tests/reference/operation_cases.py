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
    "fliplr(x)", "rot90(x, axes=(1, 2))", "rot90(x, k=-1, axes=(1, 2))", "diagonal(x, offset=1, axis1=1, axis2=2)",
    "trace(x, offset=-1, axis1=1, axis2=2)[:, None] * x[:, 0]", "array_split(x, 3, axis=2)[0]", "hsplit(x, 2)[1]",
    "dsplit(x, [2])[0]", "copy(x) + x",
    # angles and other numbers
    "arcsin(x / 2.5)", "arccos(x / 2.5)", "arctan(x * 3)", "arctan2(x, 0.3 - x)", "arctan2(x, -2)", "cbrt(x)", "sinc(x)",
    "fabs(x)", "where(isposinf(1 / floor(absolute(x))), x, 2 * x)", "where(isneginf(x), 1, x)",
    "x * cast(digitize(x, [-1, 0, 1.5]), 'float32')", "fmod(x * 4, 1.5) + x", "fmax(x, 0.1)",
    "divide_no_nan(x, floor(absolute(x)))", "where(isclose(x, floor(x), rtol=0.1), x, 2 * x)",
    # orders
    "median(x, axis=1)", "median(x, axis=(1, 2), keepdims=True) * x", "quantile(x, 0.3, axis=1)",
    "quantile(x, [0.2, 0.7], axis=1)[1]", "percentile(x, 40, axis=-1, method='nearest')",
    "take_along_axis(x, argsort(x, axis=1), axis=1)", "take_along_axis(x, argmax(x, axis=1, keepdims=True), axis=1)",
    "ptp(x, axis=1)", "cumprod(x, axis=1)", "nanmax(log(x + 1.2), axis=(1, 2), keepdims=True) + x",
    "nanmin(log(x + 1.2), axis=(1, 2), keepdims=True) + x", "nansum(log(x + 1.2), axis=1)",
    "nanmean(log(x + 1.2), axis=(1, 2), keepdims=True) * x", "nanvar(log(x + 1.2), axis=(1, 2), keepdims=True) * x",
    "nanstd(log(x + 1.2), axis=(1, 2), keepdims=True) * x",
    # windows
    "max_pool(x, 2, strides=2)", "max_pool(x[..., None], 2, strides=1)", "average_pool(x[..., None], (2, 3), strides=2, padding='same')",
    "max_pool(x[:, None], 2, strides=(2, 1), data_format='channels_first')", "adaptive_max_pool(x[..., None], (2, 3))",
    "adaptive_average_pool(x[..., None], (2, 2))", "conv(x[..., :1], [[[0.5]], [[-1]], [[0.25]]])",
    "conv(x[..., :1], [[[0.5]], [[-1]], [[0.25]]], padding='same', dilation_rate=2)",
    "depthwise_conv(x[..., :1], [[[0.5]], [[-1]], [[0.25]]], strides=2)",
    "separable_conv(x[..., :1], [[[0.5]], [[-1]], [[0.25]]], [[[2, 0.5]]], padding='same')",
    "conv_transpose(x[..., :1], [[[0.5]], [[-1]], [[0.25]]], strides=2)",
    "conv_transpose(x[..., :1], [[[0.5]], [[-1]], [[0.25]]], strides=2, padding='same', output_padding=1)",
    "extract_patches(x[..., None], 2)", "extract_patches(stack([x, 2 * x], axis=-1), (2, 3), strides=1, padding='same')",
    # images
    "rgb_to_grayscale(stack([x, x * 2, 1 - x], axis=-1))", "rgb_to_hsv(sigmoid(stack([x, x * 2, 1 - x], axis=-1)))",
    "hsv_to_rgb(sigmoid(stack([x, x * 2, 1 - x], axis=-1)))", "resize(x[..., None], (7, 3))",
    "resize(x[:, None], (8, 10), interpolation='nearest', data_format='channels_first')",
    "resize(x[..., None], (3, 3), antialias=True, crop_to_aspect_ratio=True)",
    "pad_images(x[..., None], top_padding=1, left_padding=2, target_height=6, target_width=8)",
    "crop_images(x[..., None], top_cropping=1, bottom_cropping=1, left_cropping=0, target_width=3)",
    "gaussian_blur(x[..., None], (3, 5), (1.0, 0.7), data_format='channels_last')", "sobel_edges(x[..., None])",
    # normalization, attention, classes
    "layer_normalization(x)", "layer_normalization(x, [0.5, 1, 1.5, 2, -1], axis=-1)",
    "layer_normalization(x, axis=[1, 2], epsilon=0.001)", "rms_normalization(x)",
    "rms_normalization(x, [0.5, 1, 1.5, 2, -1], epsilon=0.01)", "moments(x, axes=[1])[0]",
    "moments(x, axes=[1, 2], keepdims=True)[1] * x",
    "dot_product_attention(x[:, :, None], x[:, :, None] * 2, x[:, :, None], is_causal=True)",
    "dot_product_attention(x[:, :, None], sin(x)[:, :, None], x[:, :, None], scale=0.3, bias=x[:, None, :, :4])",
    "dot_product_attention(x[:, :, None], x[:, :, None], x[:, :, None], mask=absolute(x[:, None, :, :4]) < 1.9)",
    "binary_crossentropy(sigmoid(x), sigmoid(x * 2))", "binary_crossentropy(sigmoid(x), x * 2, from_logits=True)",
    "categorical_crossentropy(softmax(x), x, from_logits=True)", "categorical_crossentropy(softmax(x), softmax(2 * x))",
    "sparse_categorical_crossentropy(argmax(x, axis=-1), softmax(x))", "x[:, 0] * multi_hot(argmax(x, axis=-1), 5)",
    "where(in_top_k(argmax(x, axis=-1), x * x, 2)[..., None], x, 2 * x)",
    # Fourier transforms
    "fft([x, 2 * x])[0]", "fft([x, 2 * x])[1]", "fft2([x, x * x])[1]", "ifft2([x, x * x])[0]", "rfft(x)[1]",
    "rfft(x, fft_length=8)[0]", "rfft(x, fft_length=4)[0]", "irfft([x, x * 2])", "irfft([x, x * x], fft_length=7)",
    # conditions
    "where(isfinite(1 / floor(absolute(x))), x, 0.5)", "where(logical_not(x > 0.1), x, 2 * x)",
    "where(isnan(x), 1, x)", "where(isinf(x), 1, x)", "x if 2 > 1 else -x",
]
TWO = [
    "x1 + x2", "x1 - x2", "x1 * x2", "x1 / (x2 * x2 + 1)", "maximum(x1, x2)", "minimum(x1, x2)",
    "(x1 * x1 + 0.2) ** x2", "x1 // (x2 * x2 + 0.1) + x1", "x1 % (x2 * x2 + 0.1)", "logaddexp(x1, x2)",
    "x1 * x2[:, :1] + x2[:, :, :1]", "where(x1 > x2, x1, x2 * 2)",
    "arctan2(x1, x2)", "fmod(x1, x2)", "fmax(x1, x2)", "fmin(x1, x2)", "logaddexp2(x1, x2)", "heaviside(x1, x2) + x1",
    "conv(x1, expand_dims(x2[0, :3], 2))", "layer_normalization(x1, x2[0, 0], x2[0, 1])",
    "take_along_axis(x1, argsort(x2, axis=-1), axis=-1)",
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
        return getattr(keras.ops, name, None) or getattr(keras.ops.image, name)


# Keras takes tables of numbers as arrays.
TABLES = {"table": [0.5, 1, 1.5, 2, -1], "kernel": [[[0.5]], [[-1]], [[0.25]]], "point": [[[2, 0.5]]],
          "bins": [-1, 0, 1.5]}


def attention(query, key, value, bias=None, mask=None, scale=None, is_causal=False):
    """dot_product_attention() in the dtype of its operands: JAX computes scores in float32."""
    ops = keras.ops
    scores = ops.einsum("bthd,bshd->bhts", query, key) * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    if is_causal:
        mask = ops.tril(ops.ones(scores.shape[-2:], dtype="bool"))
    scores = scores if mask is None else ops.where(mask, scores, -np.inf)
    return ops.einsum("bhts,bshe->bthe", ops.softmax(scores), value)


def function_of(expression):
    def function(*tensors):
        names = Arrays({f"x{i + 1}": tensor for i, tensor in enumerate(tensors)})
        if len(tensors) == 1:
            names["x"] = tensors[0]
        if not isinstance(tensors[0], keras.KerasTensor):
            names["dot_product_attention"] = attention
        text = expression
        for name, table in TABLES.items():
            text = text.replace(str(table), name)
            names[name] = np.array(table, str(tensors[0].dtype))
        return eval(text, {"__builtins__": {}}, names)

    return function

