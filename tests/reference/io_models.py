"""Keras models for the files that io.py writes and round_trip.py sends through meshtrain.

Each function returns a built model. Layers are made in an order unlike their depth where that
matters, because Keras numbers the groups of a weight file by depth.
"""
import keras
import numpy as np
from keras import layers as L


def mlp():
    model = keras.Sequential(
        [
            keras.Input((6,)),
            L.Dense(5, activation="relu", kernel_initializer="he_normal", kernel_regularizer="l2", name="d1"),
            L.Dropout(0.4),
            L.Dense(4, activation=L.LeakyReLU(negative_slope=0.1), use_bias=False),
            L.Dense(3, activation="softmax", kernel_constraint=keras.constraints.MaxNorm(3.0)),
        ],
        name="mlp",
    )
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.01, 100), clipnorm=1.0),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def convnet():
    model = keras.Sequential(
        [
            keras.Input((10, 10, 1)),
            L.Rescaling(1 / 255),
            L.Conv2D(4, 3, padding="same", use_bias=False),
            L.BatchNormalization(scale=False),
            L.ReLU(),
            L.MaxPooling2D(),
            L.Conv2D(6, (3, 2), strides=2, name="large"),
            L.BatchNormalization(momentum=0.9, epsilon=1e-4),
            L.Activation("gelu"),
            L.GlobalAveragePooling2D(),
            L.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), loss=loss)
    return model


def several():
    """Two inputs, two named outputs, every merge."""
    late = L.Dense(4, name="late")  # made first, used last
    a = keras.Input((5,), name="a")
    b = keras.Input((5,), name="b")
    p = L.Dense(5, activation="tanh", name="pa")(a)
    q = L.Dense(5, name="pb")(b)
    merged = [L.Add()([p, q]), L.Subtract()([p, q]), L.Multiply()([p, q]), L.Average()([p, q, a])]
    merged += [L.Maximum()([p, q]), L.Minimum()([p, b])]
    x = L.Concatenate()(merged)
    label = L.Dense(3, activation="softmax", name="label")(late(x))
    angle = L.Dense(1, name="angle")(p)
    model = keras.Model([a, b], {"which": label, "how_far": angle}, name="several")
    model.compile(
        "rmsprop",
        loss={"which": "categorical_crossentropy", "how_far": keras.losses.Huber()},
        loss_weights={"which": 1.0, "how_far": 0.25},
        metrics={"which": ["accuracy"], "how_far": ["mae", keras.metrics.RootMeanSquaredError()]},
    )
    return model


def shared():
    """An embedding and a Dense used twice each."""
    left = keras.Input((4,), dtype="int32", name="left")
    right = keras.Input((4,), dtype="int32", name="right")
    table = L.Embedding(11, 3, name="table")
    tower = L.Dense(6, activation="relu", name="tower")
    flat = L.Flatten()
    u = tower(flat(table(left)))
    v = tower(flat(table(right)))
    return keras.Model([left, right], [L.Dot(axes=1, normalize=True)([u, v]), u])


def resnet():
    def block(x, filters, stride):
        shortcut = x
        if stride > 1:
            shortcut = L.Conv2D(filters, 1, strides=stride)(x)
        y = L.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
        y = L.ReLU()(L.BatchNormalization()(y))
        y = L.BatchNormalization()(L.Conv2D(filters, 3, padding="same", use_bias=False)(y))
        return L.ReLU()(y + shortcut)

    image = keras.Input((8, 8, 3), name="image")
    x = L.Conv2D(4, 3, padding="same")(image)
    for filters, stride in ((4, 1), (6, 2), (6, 1)):
        x = block(x, filters, stride)
    return keras.Model(image, L.Dense(2)(L.GlobalAveragePooling2D()(x)), name="resnet")


def separable():
    image = keras.Input((7, 9, 4), name="image")
    x = L.SeparableConv2D(5, 3, padding="same", strides=2, depth_multiplier=2)(image)
    x = L.DepthwiseConv2D(3, padding="same")(L.ZeroPadding2D(((1, 0), (2, 1)))(x))
    x = L.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(x)
    x = L.Cropping2D(((1, 0), (0, 1)))(L.UpSampling2D((2, 1))(x))
    x = L.AveragePooling2D(2, padding="same")(L.Conv2D(4, 3, groups=2, dilation_rate=2)(x))
    return keras.Model(image, L.Conv1D(3, 3, padding="causal")(L.Reshape((-1, 4))(x)))


def normalized():
    x = keras.Input((6, 4))
    y = L.LayerNormalization(epsilon=1e-5)(x)
    y = L.GroupNormalization(groups=2)(y)
    y = L.PReLU(shared_axes=[1])(L.EinsumDense("abc,cd->abd", output_shape=(6, 5), bias_axes="d")(y))
    y = L.RMSNormalization()(L.Permute((2, 1))(y))
    return keras.Model(x, L.UnitNormalization()(L.GlobalMaxPooling1D()(y)), name="normalized")


def adapted():
    rows = np.random.default_rng(3).normal(2.0, 3.0, (50, 4)).astype("float32")
    normalization = L.Normalization(name="scale")
    normalization.adapt(rows)
    fixed = L.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 5.0, 6.0])
    return keras.Sequential([keras.Input((4,)), normalization, L.Dense(3), fixed], name="adapted")


def nested():
    """A Sequential and a Functional inside, the latter used twice; arithmetic on tensors."""
    pair = keras.Sequential([L.Dense(5, activation="relu"), L.Dense(4, name="head")], name="pair")
    x = keras.Input((4,))
    inner = keras.Model(x, L.Dense(4, name="head")(x), name="inner")
    a = keras.Input((4,), name="a")
    b = keras.Input((4,), name="b")
    u = inner(a)
    v = inner(b)
    w = keras.ops.relu(1.0 - u * v / 2.0)
    return keras.Model([a, b], [pair(w), v], name="nested")


def operations():
    """keras.ops on tensors, between layers made in an order unlike their depth."""
    ops = keras.ops
    late = L.Dense(4, name="late")
    a = keras.Input((4, 6), name="a")
    b = keras.Input((4, 6), name="b")
    p = L.Dense(6, name="p")(a)
    q = L.Dense(6, name="q")(b)
    x = p[:, 1:, ::2] / (q[:, 1:, 1::2] ** 2 + 1.0)
    y = ops.einsum("bij,bkj->bik", p, q) - ops.mean(p, axis=(1, 2), keepdims=True)
    z = ops.concatenate([x, y[:, :3, -2:]], axis=-1)
    u = ops.where(ops.abs(z) > 0.5, z, 1 / (ops.exp(-z) + 1))
    v = ops.stack([ops.max(u, axis=1), ops.clip(ops.sum(u, axis=1), -1, 1)], axis=1)
    w = ops.reshape(ops.transpose(v, (0, 2, 1)), (-1, 10))
    r = L.Dense(5, name="r")(w)
    s = late(w * np.array([1.0, 0.5, 1, 1, 2, 2, 1, 1, 1, -1], "float32"))
    return keras.Model([a, b], {"sum": r + 1.5, "late": s}, name="operations")


def recurrent():
    """Weights in groups of cells, a mask, both kinds of GRU."""
    model = keras.Sequential(
        [
            keras.Input((5, 3)),
            L.Masking(),
            L.LSTM(4, return_sequences=True, activation="tanh"),
            L.GRU(3, return_sequences=True, reset_after=False, go_backwards=True),
            L.GRU(4, return_sequences=True),
            L.SimpleRNN(3, activation="relu"),
            L.Dense(2),
        ]
    )
    model.compile("adam", "mse")
    return model


def attention():
    """Weights in groups of projections, tensors by position and by name."""
    x = keras.Input((5, 4))
    y = keras.Input((3, 4))
    a = L.MultiHeadAttention(2, 3)(x, y)
    b = L.GroupQueryAttention(2, 4, 2, name="grouped")(a, a)
    c = L.AdditiveAttention()([b, y])
    model = keras.Model([x, y], L.Attention(use_scale=True)([c, y]))
    model.compile("adam", "mse")
    return model


def hub():
    """Layers of Keras Hub, with weights in groups of sub-layers."""
    from keras_hub import layers as H

    ids = keras.Input((4,), dtype="int32")
    x = H.TokenAndPositionEmbedding(11, 4, 6)(ids)
    y = H.TransformerEncoder(8, 2, activation="gelu", normalize_first=True)(x)
    model = keras.Model(ids, L.Dense(2)(H.TransformerDecoder(8, 2)(y, x)))
    model.compile("adam", "mse")
    return model


def wrapped():
    """An encoder whose states begin a decoder, both directions apart and merged, and layers for each step."""
    x = keras.Input((5, 3))
    y, h, c = L.LSTM(4, return_state=True, name="encoder")(x)
    z = L.LSTM(4, return_sequences=True, name="decoder")(L.RepeatVector(3)(y), initial_state=[h, c])
    a, b, forward, backward = L.Bidirectional(L.GRU(2, return_state=True, return_sequences=True), merge_mode=None)(x)
    other = L.SimpleRNN(2, go_backwards=True, name="other")
    merged = L.Bidirectional(L.GRU(2), merge_mode="mul", backward_layer=other)(a, initial_state=[forward, backward])
    steps = L.TimeDistributed(L.BatchNormalization())(L.TimeDistributed(L.Dense(2, activation="tanh"))(z))
    model = keras.Model(x, [steps, L.Concatenate()([merged, L.GlobalAveragePooling1D()(b), backward]), h])
    model.compile("adam", "mse")
    return model


def stacked():
    """Cells of a layer RNN, alone, in a stack and in both directions; states of a stack that begin another one."""
    x = keras.Input((5, 3))
    cells = [L.LSTMCell(3), L.GRUCell(2, reset_after=False), L.LSTMCell(4)]
    y, *states = L.RNN(cells, return_sequences=True, return_state=True)(x)
    other = [L.LSTMCell(3, name="first"), L.GRUCell(2), L.LSTMCell(4)]
    z = L.RNN(other, name="second")(L.Dense(3)(y), initial_state=states)
    one = L.Bidirectional(L.RNN(L.SimpleRNNCell(2)))(y)
    model = keras.Model(x, L.Concatenate()([z, one, L.RNN(L.GRUCell(3))(x)]))
    model.compile("adam", "mse")
    return model


def masked():
    """A mask of steps that goes through several recurrent layers."""
    ids = keras.Input((7,), dtype="int32")
    x = L.Embedding(11, 4, mask_zero=True)(ids)
    x = L.Bidirectional(L.LSTM(3, return_sequences=True))(x)
    x = L.TimeDistributed(L.Dense(4, activation="relu"))(x)
    x = L.LSTM(3, return_sequences=True)(x)
    model = keras.Model(ids, L.GRU(2)(x))
    model.compile("adam", "mse")
    return model


def merged():
    """Merges of inputs that have masks of their own, and of one with an input that has none."""
    left, right = keras.Input((6,), dtype="int32", name="left"), keras.Input((6,), dtype="int32", name="right")
    plain = keras.Input((6, 4), name="plain")
    a, b = L.Embedding(11, 4, mask_zero=True)(left), L.Embedding(11, 4, mask_zero=True)(right)
    merges = [L.Add(), L.Subtract(), L.Multiply(), L.Average(), L.Maximum(), L.Minimum(), L.Concatenate(), L.Concatenate(axis=1),
              L.Attention()]
    outputs = [L.LSTM(2)(merge([a, b])) for merge in merges]
    outputs += [L.GlobalAveragePooling1D()(merge([a, b, a])) for merge in (L.Multiply(), L.Minimum())]
    outputs += [L.GRU(2)(merge([a, plain])) for merge in (L.Add(), L.Multiply(), L.Maximum(), L.Concatenate())]
    return keras.Model([left, right, plain], outputs)


def translated():
    """An encoder whose only state begins a decoder of another input."""
    source, target = keras.Input((5, 3), name="source"), keras.Input((4, 2), name="target")
    _, state = L.GRU(4, return_state=True)(source)
    y = L.GRU(4, return_sequences=True, go_backwards=True)(target, initial_state=state)
    z = L.SimpleRNN(4)(y, initial_state=state)
    model = keras.Model([source, target], [L.Dense(3, activation="softmax")(y), z])
    model.compile("adam", "mse")
    return model


def heads():
    """Attention whose inputs have keywords, causal and under a mask of its own; a table that turns back into logits."""
    ids, mask = keras.Input((5,), dtype="int32"), keras.Input((5, 5), dtype="bool")
    table = L.ReversibleEmbedding(11, 4)
    x = table(ids)
    y = L.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    z = L.MultiHeadAttention(2, 3)(query=y, value=x, key=y, attention_mask=mask)
    z = L.GroupQueryAttention(3, 2, 1)(z, x, attention_mask=mask, use_causal_mask=True)
    model = keras.Model([ids, mask], table(z, reverse=True))
    model.compile("adam", "mse")
    return model


def weighed():
    """Attention whose scores are read, as outputs and by layers, or not."""
    x, y = keras.Input((4, 6)), keras.Input((3, 6))
    first, scores = L.MultiHeadAttention(2, 3)(x, y, return_attention_scores=True)
    second, unread = L.MultiHeadAttention(2, 3)(first, first, return_attention_scores=True)
    third, own = L.Attention(use_scale=True)([second, y], return_attention_scores=True)
    fourth, sums = L.AdditiveAttention()([third, third], return_attention_scores=True, use_causal_mask=True)
    group, four = L.GroupQueryAttention(3, 4, 2)(fourth, x, return_attention_scores=True)
    joined = L.Concatenate(axis=-1)([group, L.Conv1D(2, 1)(sums), L.Dense(2)(own)])
    model = keras.Model([x, y], [joined, L.Flatten()(scores), four])
    model.compile("adam", "mse")
    return model


def counted():
    """Second inputs that have names of their own, and a list of layers over images."""
    ids, amounts = keras.Input((4,), dtype="int32"), keras.Input((4,))
    x, keep, other = keras.Input((4, 3)), keras.Input((4,), dtype="bool"), keras.Input((4,), dtype="bool")
    images = keras.Input((6, 5, 3))
    counts = L.CategoryEncoding(11, output_mode="count")(ids, count_weights=amounts)
    means = L.GlobalAveragePooling1D()(x, keep)
    others = L.GlobalAveragePooling1D()(x, mask=other)
    changed = L.Pipeline([L.RandomPerspective(scale=0.3), L.Rescaling(0.5, offset=1.0)])(images)
    model = keras.Model([ids, amounts, x, keep, other, images], [L.Concatenate()([counts, means, others]), changed])
    model.compile("adam", "mse")
    return model


def filmed():
    """Images in time: states that begin another layer, both directions, channels first."""
    x = keras.Input((4, 5, 6, 2))
    y, h, c = L.ConvLSTM2D(3, (2, 3), padding="same", return_sequences=True, return_state=True, name="first")(x)
    z = L.ConvLSTM2D(3, 3, padding="same", strides=1, use_bias=False)(y, initial_state=[h, c])
    both = L.Bidirectional(L.ConvLSTM2D(2, 3, dilation_rate=(1, 2), return_sequences=True))(y)
    turned = L.ConvLSTM2D(2, 2, strides=2, data_format="channels_first")(L.Permute((1, 4, 2, 3))(x))
    rows = L.TimeDistributed(L.ConvLSTM1D(2, 2, return_sequences=True))(both)
    small = L.Flatten()(L.ConvLSTM3D(2, 2, go_backwards=True)(L.Reshape((2, 2, 5, 6, 2))(x)))
    model = keras.Model(x, [z, L.Flatten()(rows), turned, small])
    model.compile("adam", "mse")
    return model


def spectral():
    """Kernels that are divided by their largest singular value in training."""
    model = keras.Sequential(
        [
            keras.Input((6, 5, 2)),
            L.SpectralNormalization(L.Conv2D(3, 3, activation="relu")),
            L.Flatten(),
            L.SpectralNormalization(L.Dense(2, name="inner"), power_iterations=2, name="end"),
        ]
    )
    model.compile("adam", "mse")
    return model


def unsized():
    """Steps and images of any size, for layers that need one."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    images = keras.Input((None, None, 2), name="images")
    x = L.Conv1D(4, 3)(L.Embedding(11, 4)(ids))
    x = L.MultiHeadAttention(2, 3)(x, x)
    y = L.GlobalAveragePooling2D()(L.Conv2D(3, 3)(images))
    return keras.Model([ids, images], L.Concatenate()([L.GlobalMaxPooling1D()(x), y]), name="unsized")


def halved():
    """A nested model of which one output is not used, as the encoder of a VAE in front of its decoder."""
    x = keras.Input((4,), name="seen")
    h = L.Dense(5, activation="relu", name="hidden")(x)
    log_variance = L.Dense(2, name="z_log_var")(L.Dense(3, name="before")(h))
    encoder = keras.Model(x, [L.Dense(2, name="z_mean")(h), log_variance], name="encoder")
    y = keras.Input((4,), name="x")
    return keras.Model(y, L.Dense(4, name="decoder")(encoder(y)[0]), name="halved")


def filmstrip():
    """TimeDistributed around models: nested ones, a chain, and one that is called twice."""
    block = keras.Sequential([L.Conv2D(2, 3, name="conv"), L.BatchNormalization()], name="block")
    images = keras.Input((6, 6, 2))
    chain = keras.Model(images, L.Dense(3, name="dense")(L.Flatten()(block(images))), name="chain")
    steps = keras.Sequential([L.Dense(4, activation="relu"), L.Dropout(0.5), L.Dense(2)], name="steps")
    a = keras.Input((3, 6, 6, 2), name="a")
    b = keras.Input((3, 6, 6, 2), name="b")
    frames = L.TimeDistributed(chain, name="frames")
    both = L.Concatenate()([frames(a), frames(b)])
    return keras.Model([a, b], L.LSTM(3)(L.TimeDistributed(steps, name="steps")(both)), name="filmstrip")


def cast():
    """A mask of what a layer cast before: its input is float32, its policy is not."""
    keras.config.set_dtype_policy("float64")
    x = keras.Input((4, 3), name="x")
    h = L.LSTM(4, return_sequences=True)(L.Masking()(x))
    model = keras.Model(x, L.GRU(2)(h), name="cast")
    keras.config.set_dtype_policy("float32")
    return model


def tables():
    """Tables whose masks are joined for one layer, and one without: the masks change the depth of the layers."""
    words, tags = keras.Input((4,), dtype="int32", name="words"), keras.Input((4,), dtype="int32", name="tags")
    user = keras.Input((1,), dtype="int32", name="user")
    w, t = L.Embedding(11, 3, mask_zero=True, name="w")(words), L.Embedding(11, 3, mask_zero=True, name="t")(tags)
    u = L.Flatten()(L.Embedding(11, 3, name="u")(user))
    for _ in range(4):
        u = L.Dense(3, activation="tanh")(u)
    joined = L.Concatenate()([w, t])
    steps = L.TimeDistributed(L.Dense(3))(L.BatchNormalization()(joined))
    out = L.Dense(2, name="out")(L.Concatenate()([u, L.LSTM(2)(joined), L.GlobalAveragePooling1D()(steps)]))
    return keras.Model([words, tags, user], out, name="tables")


def bfloat16():
    """Masks of what a layer casts, and of layers that compute in another dtype than their inputs have."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    x, ids = keras.Input((4, 3), name="x"), keras.Input((4,), dtype="int32", name="ids")
    a, b = L.Masking()(x), L.Embedding(11, 3, mask_zero=True, name="b")(ids)
    c = L.Dense(3, name="c")(L.Embedding(11, 3, name="d")(ids))
    h = L.LSTM(2, dtype="float32")(L.Concatenate()([a, b]))
    e = L.Dense(2, name="e", dtype="float32")(L.Flatten()(L.Embedding(11, 3, name="f")(ids)))
    z = L.GRU(2)(L.Add()([L.Concatenate()([a, c]), L.Concatenate()([a, b])]))
    model = keras.Model([x, ids], L.Dense(2, dtype="float32", name="out")(L.Concatenate()([h, e, z])), name="bfloat16")
    keras.config.set_dtype_policy("float32")
    return model


def answered():
    """A decoder that begins with states: Keras fills in no mask there, but passes it on; and masks joined without a name."""
    question, answer = keras.Input((5,), dtype="int32", name="question"), keras.Input((6,), dtype="int32", name="answer")
    x = L.Embedding(11, 4, mask_zero=True)(question)
    _, h, c = L.LSTM(4, return_state=True)(L.Concatenate()([x, L.LSTM(4, return_sequences=True)(x)]))
    y = L.Embedding(11, 4, mask_zero=True)(answer)
    y = L.LSTM(4, return_sequences=True, name="decoder")(y, initial_state=[h, c])
    z = L.Bidirectional(L.GRU(4), name="both")(y, initial_state=[h, c])
    y = L.MultiHeadAttention(2, 2, name="heads")(y, x, key_mask=keras.ops.not_equal(question, 0))
    model = keras.Model([question, answer], [L.GlobalAveragePooling1D()(L.Dense(3)(y)), z], name="answered")
    model.compile("adam", "mse")
    return model


def hierarchy():
    """Words of sentences: a TimeDistributed of a model that makes masks, and of one with branches within masked steps."""
    words = keras.Sequential([keras.Input((6,), dtype="int32"), L.Embedding(11, 4, mask_zero=True), L.LSTM(3)], name="words")
    ids = keras.Input((4, 6), dtype="int32", name="ids")
    x = L.GRU(5, return_sequences=True)(L.TimeDistributed(words)(ids))
    a = keras.Input((5,))
    b = L.Dense(5, activation="tanh")(a)
    both = keras.Model(a, L.Add()([b, L.BatchNormalization()(b)]), name="both")
    steps = keras.Input((4, 5), name="steps")
    y = L.TimeDistributed(both)(L.Masking(-1.0)(steps))
    model = keras.Model([ids, steps], [L.LSTM(2)(x), L.LSTM(2)(y)])
    model.compile("adam", "mse")
    return model


def frames():
    """Steps that operations move into the batch and out of it; an operation of layers called as its operands are here."""
    video = keras.Input((3, 6, 6, 2))
    x = keras.ops.reshape(video, (-1, 6, 6, 2))
    x = L.Conv2D(3, 3, activation="relu")(x)
    x = L.GlobalMaxPooling2D()(x)
    x = L.LSTM(4)(keras.ops.reshape(x, (-1, 3, 3)))
    first, second = L.Dense(2, name="x1")(x), L.Dense(2, name="x2")(x)
    model = keras.Model(video, second - first)
    model.compile("adam", "mse")
    return model


def tied():
    """A head of Keras Hub whose second product is the table of the tokens."""
    from keras_hub import layers as H

    ids, places = keras.Input((11,), dtype="int32", name="ids"), keras.Input((3,), dtype="int32", name="places")
    table = L.ReversibleEmbedding(12, 4, name="tokens")
    x = L.Dense(4, activation="tanh")(table(ids))
    head = H.MaskedLMHead(token_embedding=table, intermediate_activation="gelu", name="head")
    model = keras.Model([ids, places], head(x, mask_positions=places))
    model.compile("adam", "mse")
    return model


MODELS = [mlp, convnet, several, shared, resnet, separable, normalized, adapted, nested, operations, recurrent, attention,
          hub, wrapped, masked, stacked, filmed, spectral, translated, heads, weighed, counted,
          unsized, halved, filmstrip, merged, cast, hierarchy, frames, tied, tables, bfloat16, answered]


def fill(model, seed):
    """Weights with values that show where each of them is: no zeros, no ones."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        name = weight.path.rsplit("/", 1)[-1]
        if "seed" in name or name == "count" or weight.path.startswith("scale/"):
            continue
        values = rng.normal(0.0, 0.5, weight.shape)
        weight.assign(np.abs(values) + 0.2 if "variance" in name else values)


def samples(model, seed, count=3):
    """Inputs by name: small integers where a model takes them, else normal numbers. A size of None is 7."""
    rng = np.random.default_rng(seed)
    out = {}
    for x in model.inputs:
        shape = (count, *(size or 7 for size in x.shape[1:]))
        integers = "int" in x.dtype
        out[x.name] = rng.integers(0, 11, shape, "int32") if integers else rng.normal(size=shape).astype(x.dtype)
        if x.dtype == "bool":  # a step sees the first one at least
            out[x.name] = rng.normal(size=shape) > 0
            out[x.name][..., 0] = True
    if model.name == "cast":  # steps that are left out
        out["x"][0, 2:] = out["x"][1, 1] = 0
    if "steps" in out:
        out["steps"][0, 2:] = out["steps"][1, 1] = -1
    return out


def predictions(model, inputs):
    """Outputs by name in meshtrain's words: keys of a map, else layers' names."""
    given = list(inputs.values())
    found = model.predict(given if len(given) > 1 else given[0], verbose=0)
    if isinstance(found, dict):
        return found
    found = found if isinstance(found, list) else [found]
    return dict(zip([f"output_{i}" for i in range(len(found))], found))
