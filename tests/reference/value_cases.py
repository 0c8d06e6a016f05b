"""The cases of values.py: what is computed, with which arguments, on which inputs."""

# The first seven are those of the Keras tables; the others are off every kink.
ACTIVATION_POINTS = [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, -2.7, -0.3, 0.2, 0.7, 6.5]
ELEMENTWISE_ACTIVATIONS = [
    ("linear", {}), ("relu", {}), ("relu", {"negative_slope": 0.1, "max_value": 2.0, "threshold": 0.6}),
    ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.3}), ("relu6", {}), ("elu", {}),
    ("elu", {"alpha": 0.5}), ("celu", {}), ("celu", {"alpha": 2.0}), ("selu", {}), ("softplus", {}),
    ("softsign", {}), ("squareplus", {}), ("squareplus", {"b": 1.0}), ("soft_shrink", {}),
    ("soft_shrink", {"threshold": 1.5}), ("hard_shrink", {}), ("hard_shrink", {"threshold": 1.5}),
    ("tanh_shrink", {}), ("sparse_plus", {}), ("silu", {}), ("gelu", {}), ("gelu", {"approximate": True}),
    ("tanh", {}), ("sigmoid", {}), ("exponential", {}), ("sparse_sigmoid", {}), ("hard_sigmoid", {}),
    ("hard_silu", {}), ("hard_tanh", {}), ("mish", {}), ("log_sigmoid", {}),
    ("threshold", {"threshold": 0.6, "default_value": 0.25}),
]
ROW_ACTIVATIONS = [("softmax", {}), ("softmax", {"axis": 0}), ("log_softmax", {}), ("sparsemax", {}),
                   ("glu", {}), ("glu", {"axis": -1})]

Y = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
P = [[0.05, 0.9, 0.05], [0.1, 0.8, 0.1], [0.3, 0.2, 0.5], [0.25, 0.5, 0.25]]
LOGITS = [[1.5, -0.5, 0.25], [-18.6, 0.51, 2.94], [0.0, 0.125, -3.0], [12.8, -1.0, 2.0]]
REAL = [[1.0, 2.0, 0.5], [3.0, 4.0, -1.0], [0.25, -0.75, 2.0], [1.5, 0.0, 1.0]]
GUESS = [[1.5, 1.0, 0.75], [3.25, 6.0, -0.25], [0.5, -0.5, 4.5], [1.25, 0.125, 0.5]]
BINARY = [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
PROBABILITIES = [[0.6, 0.4, 0.9], [0.4, 0.6, 0.1], [0.2, 0.3, 0.7], [0.99, 0.5, 0.05]]
WEIGHTS = [0.3, 0.7, 0.0, 2.0]
CLASSES = [1, 2, 0, 1]


def losses():
    """Each loss with defaults, each argument, each reduction, and sample weights."""
    result = []

    def add(name, y_true, y_pred, *configs):
        for config in ({}, *configs, {"reduction": "sum"}, {"reduction": "mean_with_sample_weight"}):
            result.append({"class_name": name, "config": config, "y_true": y_true, "y_pred": y_pred})
            if not config or "reduction" in config:
                result.append(dict(result[-1], sample_weight=WEIGHTS))

    for name in ("MeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError", "LogCosh"):
        add(name, REAL, GUESS)
    positive = [[abs(v) for v in row] for row in GUESS]
    add("MeanSquaredLogarithmicError", [[abs(v) for v in row] for row in REAL], positive)
    add("Poisson", [[abs(v) for v in row] for row in REAL], positive)
    add("CosineSimilarity", REAL, GUESS, {"axis": 0})
    add("Huber", REAL, GUESS, {"delta": 0.3})
    add("KLDivergence", P, PROBABILITIES)
    for name in ("Hinge", "SquaredHinge"):
        add(name, BINARY, GUESS)
        add(name, [[2 * v - 1 for v in row] for row in BINARY], GUESS)
    add("CategoricalHinge", Y, GUESS)
    add("BinaryCrossentropy", BINARY, PROBABILITIES, {"label_smoothing": 0.2}, {"axis": 0})
    add("BinaryCrossentropy", BINARY, LOGITS, {"from_logits": True},
        {"from_logits": True, "label_smoothing": 0.2})
    add("CategoricalCrossentropy", Y, P, {"label_smoothing": 0.1})
    add("CategoricalCrossentropy", Y, LOGITS, {"from_logits": True},
        {"from_logits": True, "label_smoothing": 0.1})
    add("SparseCategoricalCrossentropy", CLASSES, P, {"ignore_class": 1})
    add("SparseCategoricalCrossentropy", CLASSES, LOGITS, {"from_logits": True},
        {"from_logits": True, "ignore_class": 2})
    add("BinaryFocalCrossentropy", BINARY, PROBABILITIES, {"gamma": 1.0}, {"label_smoothing": 0.1},
        {"apply_class_balancing": True, "alpha": 0.3})
    add("BinaryFocalCrossentropy", BINARY, LOGITS, {"from_logits": True})
    add("CategoricalFocalCrossentropy", Y, P, {"alpha": 0.5, "gamma": 3.0}, {"label_smoothing": 0.1})
    add("CategoricalFocalCrossentropy", Y, LOGITS, {"from_logits": True})
    for name, extra in (("Dice", {"axis": -1}), ("Tversky", {"alpha": 0.3, "beta": 0.7})):
        result.append({"class_name": name, "config": {}, "y_true": BINARY, "y_pred": PROBABILITIES})
        result.append({"class_name": name, "config": extra, "y_true": BINARY, "y_pred": PROBABILITIES})
    # Logits that are read as probabilities are no case: Keras clips them to nonsense on purpose.
    return [c for c in result if c["y_pred"] is not LOGITS or c["config"].get("from_logits")]


def metrics():
    result = []
    halves = [slice(0, 2), slice(2, 3), slice(3, 4)]

    def add(name, y_true, y_pred, *configs, weighted=True):
        for config in configs or ({},):
            for weights in (None, WEIGHTS) if weighted else (None,):
                updates = [(y_true[h], y_pred[h], None if weights is None else weights[h]) for h in halves]
                result.append({"class_name": name, "config": config, "updates": updates})

    for name in ("MeanSquaredError", "RootMeanSquaredError", "MeanAbsoluteError",
                 "MeanAbsolutePercentageError", "LogCoshError", "CosineSimilarity"):
        add(name, REAL, GUESS)
    add("Accuracy", CLASSES, [1, 2, 1, 1])
    add("BinaryAccuracy", BINARY, PROBABILITIES, {}, {"threshold": 0.3})
    add("CategoricalAccuracy", Y, P)
    add("SparseCategoricalAccuracy", CLASSES, P)
    add("TopKCategoricalAccuracy", Y, P, {"k": 2})
    add("SparseTopKCategoricalAccuracy", CLASSES, P, {"k": 2})
    add("BinaryCrossentropy", BINARY, PROBABILITIES, {}, {"label_smoothing": 0.2})
    add("CategoricalCrossentropy", Y, P, {}, {"label_smoothing": 0.1})
    add("SparseCategoricalCrossentropy", CLASSES, P)
    add("KLDivergence", P, PROBABILITIES)
    add("Poisson", [[abs(v) for v in r] for r in REAL], [[abs(v) for v in r] for r in GUESS])
    add("Hinge", BINARY, GUESS)
    add("SquaredHinge", BINARY, GUESS)
    add("CategoricalHinge", Y, GUESS)
    for name in ("Precision", "Recall", "TruePositives", "TrueNegatives", "FalsePositives",
                 "FalseNegatives"):
        add(name, BINARY, PROBABILITIES, {}, {"thresholds": [0.3, 0.6]})
    add("AUC", BINARY, PROBABILITIES, {}, {"curve": "PR"}, {"num_thresholds": 20})
    add("BinaryIoU", BINARY, PROBABILITIES, weighted=False)
    add("MeanIoU", CLASSES, [1, 2, 1, 1], {"num_classes": 3}, weighted=False)  # weights would be cut to integers
    add("F1Score", Y, P, {}, {"average": "micro", "threshold": 0.4}, {"average": "macro"},
        {"average": "weighted"})
    add("R2Score", REAL, GUESS)
    return result


SCHEDULE_STEPS = 26
SCHEDULES = [
    ("ExponentialDecay", {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
    ("ExponentialDecay",
     {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": True}),
    ("InverseTimeDecay", {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
    ("InverseTimeDecay",
     {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": True}),
    ("PiecewiseConstantDecay", {"boundaries": [5, 10], "values": [1.0, 0.5, 0.1]}),
    ("PolynomialDecay", {"initial_learning_rate": 0.1, "decay_steps": 10}),
    ("PolynomialDecay", {"initial_learning_rate": 0.1, "decay_steps": 10, "end_learning_rate": 0.01,
                         "power": 2.0, "cycle": True}),
    ("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 10}),
    ("CosineDecay", {"initial_learning_rate": 0.0, "decay_steps": 10, "alpha": 0.1,
                     "warmup_target": 0.1, "warmup_steps": 5}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.1, "first_decay_steps": 5}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.1, "first_decay_steps": 5, "t_mul": 1.0,
                             "m_mul": 0.5, "alpha": 0.1}),
]

OPTIMIZER_SHOWN = [1, 2, 3, 7, 20]
LR = {"learning_rate": 0.01}
DECAY = {"class_name": "ExponentialDecay",
         "config": {"initial_learning_rate": 0.1, "decay_steps": 5, "decay_rate": 0.5}}
OPTIMIZERS = [
    ("SGD", {}), ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"learning_rate": 0.1, "clipnorm": 0.2}), ("SGD", {"learning_rate": 0.1, "clipvalue": 0.15}),
    ("SGD", {"learning_rate": 0.1, "global_clipnorm": 0.2}),
    ("SGD", {"learning_rate": 0.1, "weight_decay": 0.1}),
    ("SGD", {"learning_rate": 0.1, "use_ema": True, "ema_momentum": 0.9}),
    ("SGD", {"learning_rate": 0.1, "use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 3}),
    ("SGD", {"learning_rate": 0.1, "gradient_accumulation_steps": 2}),
    ("SGD", {"learning_rate": 0.1, "loss_scale_factor": 8.0}),
    ("SGD", {"learning_rate": DECAY}), ("SGD", {"learning_rate": DECAY, "gradient_accumulation_steps": 4}),
    ("Adam", {}), ("Adam", LR), ("Adam", LR | {"amsgrad": True}),
    ("Adam", LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}), ("Adam", LR | {"weight_decay": 0.05}),
    ("Adam", {"learning_rate": DECAY}), ("Adam", LR | {"gradient_accumulation_steps": 3}),
    ("Adam", LR | {"global_clipnorm": 0.5, "weight_decay": 0.05, "use_ema": True}),
    ("AdamW", {}), ("AdamW", LR | {"weight_decay": 0.1, "amsgrad": True}),
    ("Adamax", LR), ("Adamax", LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}),
    ("Nadam", LR), ("Nadam", LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}),
    ("RMSprop", {}), ("RMSprop", LR), ("RMSprop", LR | {"momentum": 0.9}), ("RMSprop", LR | {"centered": True}),
    ("RMSprop", LR | {"rho": 0.5, "momentum": 0.9, "epsilon": 1e-3, "centered": True}),
    ("Adagrad", LR), ("Adagrad", LR | {"initial_accumulator_value": 0.5, "epsilon": 1e-3}),
    ("Adadelta", {"learning_rate": 1.0}), ("Adadelta", {"learning_rate": 0.5, "rho": 0.8, "epsilon": 1e-3}),
    ("Adafactor", LR), ("Adafactor", LR | {"relative_step": False, "clip_threshold": 0.5}),
    ("Lion", LR), ("Lion", LR | {"beta_1": 0.8, "beta_2": 0.9, "weight_decay": 0.1}),
    ("Lamb", LR), ("Lamb", LR | {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}),
    ("Ftrl", LR), ("Ftrl", LR | {"l1_regularization_strength": 0.1, "l2_regularization_strength": 0.1,
                                 "l2_shrinkage_regularization_strength": 0.1, "beta": 0.1}),
    ("Muon", LR), ("Muon", LR | {"momentum": 0.8, "nesterov": False, "ns_steps": 3}),
]

IMAGE = [[2, 6, 5, 3]]
LAYERS = [
    {"class_name": "Dense", "config": {"units": 4, "activation": "relu"}, "inputs": [[3, 5]]},
    {"class_name": "Dense", "config": {"units": 4, "use_bias": False}, "inputs": [[2, 3, 5]]},
    {"class_name": "EinsumDense", "config": {"equation": "abc,cd->abd", "output_shape": [None, 4], "bias_axes": "d"},
     "inputs": [[2, 3, 5]]},
    {"class_name": "EinsumDense", "config": {"equation": "ab,bcd->acd", "output_shape": [2, 3], "bias_axes": "c"},
     "inputs": [[3, 5]]},
    {"class_name": "EinsumDense", "config": {"equation": "...x,xy->...y", "output_shape": 4, "activation": "tanh"},
     "inputs": [[2, 3, 5]]},
    {"class_name": "Embedding", "config": {"input_dim": 7, "output_dim": 3}, "inputs": [[2, 5]], "integers": 7},
    {"class_name": "Dot", "config": {"axes": 1}, "inputs": [[3, 4], [3, 4]]},
    {"class_name": "Dot", "config": {"axes": [2, 1]}, "inputs": [[2, 3, 4], [2, 4, 5]]},
    {"class_name": "Dot", "config": {"axes": [2, 2], "normalize": True}, "inputs": [[2, 3, 4], [2, 5, 4]]},
    {"class_name": "Normalization", "config": {"mean": [0.5, -1.0, 2.0], "variance": [4.0, 0.25, 1.0]},
     "inputs": [[4, 3]]},
    {"class_name": "Normalization", "config": {"axis": None, "mean": 0.5, "variance": 4.0, "invert": True},
     "inputs": [[4, 3]]},
    {"class_name": "Rescaling", "config": {"scale": 0.25, "offset": -1.0}, "inputs": [[2, 3]]},
    {"class_name": "Softmax", "config": {}, "inputs": [[3, 4]]},
    {"class_name": "Softmax", "config": {"axis": [1, 2]}, "inputs": [[2, 3, 4]]},
    {"class_name": "ReLU", "config": {"max_value": 1.0, "negative_slope": 0.1, "threshold": 0.25}, "inputs": [[3, 5]]},
    {"class_name": "LeakyReLU", "config": {}, "inputs": [[3, 5]]},
    {"class_name": "PReLU", "config": {"shared_axes": [1]}, "inputs": [[2, 3, 4]]},
    {"class_name": "ELU", "config": {"alpha": 0.5}, "inputs": [[3, 5]]},
    {"class_name": "BatchNormalization", "config": {}, "inputs": [[6, 3]], "call": {"training": True}},
    {"class_name": "BatchNormalization", "config": {}, "inputs": [[6, 3]], "call": {"training": False}},
    {"class_name": "BatchNormalization", "config": {"scale": False, "momentum": 0.5, "epsilon": 0.01},
     "inputs": [[2, 3, 4, 3]], "call": {"training": True}},
    {"class_name": "BatchNormalization", "config": {"axis": 1, "center": False}, "inputs": [[3, 2, 4]],
     "call": {"training": True}},
    {"class_name": "LayerNormalization", "config": {}, "inputs": [[3, 5]]},
    {"class_name": "LayerNormalization", "config": {"axis": [1, 2], "scale": False}, "inputs": [[2, 3, 4]]},
    {"class_name": "RMSNormalization", "config": {}, "inputs": [[3, 5]]},
    {"class_name": "GroupNormalization", "config": {"groups": 2}, "inputs": [[2, 3, 4]]},
    {"class_name": "GroupNormalization", "config": {"groups": -1}, "inputs": [[2, 3, 4]]},
    {"class_name": "UnitNormalization", "config": {}, "inputs": [[3, 5]]},
    {"class_name": "Conv1D", "config": {"filters": 4, "kernel_size": 3, "padding": "causal", "dilation_rate": 2},
     "inputs": [[2, 7, 3]]},
    {"class_name": "Conv2D", "config": {"filters": 4, "kernel_size": 3}, "inputs": IMAGE},
    {"class_name": "Conv2D", "config": {"filters": 4, "kernel_size": [3, 2], "strides": 2, "padding": "same",
                                        "use_bias": False}, "inputs": IMAGE},
    {"class_name": "Conv2D", "config": {"filters": 4, "kernel_size": 2, "dilation_rate": 2, "activation": "relu"},
     "inputs": IMAGE},
    {"class_name": "Conv2D", "config": {"filters": 4, "kernel_size": 3, "groups": 2, "padding": "same"},
     "inputs": [[2, 5, 4, 4]]},
    {"class_name": "Conv3D", "config": {"filters": 2, "kernel_size": 2}, "inputs": [[1, 3, 3, 3, 2]]},
    {"class_name": "DepthwiseConv2D", "config": {"kernel_size": 3, "depth_multiplier": 2, "padding": "same"},
     "inputs": IMAGE},
    {"class_name": "SeparableConv2D", "config": {"filters": 4, "kernel_size": 3}, "inputs": IMAGE},
    {"class_name": "Conv2DTranspose", "config": {"filters": 2, "kernel_size": 3, "strides": 2}, "inputs": [[1, 3, 2, 3]]},
    {"class_name": "Conv2DTranspose", "config": {"filters": 2, "kernel_size": 3, "strides": 2, "padding": "same"},
     "inputs": [[1, 3, 2, 3]]},
    {"class_name": "MaxPooling2D", "config": {}, "inputs": IMAGE},
    {"class_name": "MaxPooling2D", "config": {"pool_size": 3, "strides": 2, "padding": "same"}, "inputs": IMAGE},
    {"class_name": "AveragePooling2D", "config": {"pool_size": 2}, "inputs": IMAGE},
    {"class_name": "AveragePooling2D", "config": {"pool_size": 3, "strides": 2, "padding": "same"}, "inputs": IMAGE},
    {"class_name": "MaxPooling1D", "config": {"pool_size": 2}, "inputs": [[2, 6, 3]]},
    {"class_name": "GlobalAveragePooling2D", "config": {}, "inputs": IMAGE},
    {"class_name": "GlobalAveragePooling2D", "config": {"keepdims": True}, "inputs": IMAGE},
    {"class_name": "GlobalMaxPooling2D", "config": {}, "inputs": IMAGE},
    {"class_name": "GlobalAveragePooling1D", "config": {}, "inputs": [[2, 4, 3]]},
    {"class_name": "ZeroPadding2D", "config": {"padding": [[1, 0], [0, 2]]}, "inputs": [[1, 2, 3, 2]]},
    {"class_name": "Cropping2D", "config": {"cropping": [[1, 0], [0, 2]]}, "inputs": [[1, 3, 4, 2]]},
    {"class_name": "UpSampling2D", "config": {}, "inputs": [[1, 2, 3, 2]]},
    {"class_name": "UpSampling2D", "config": {"interpolation": "bilinear"}, "inputs": [[1, 2, 3, 2]]},
    {"class_name": "Flatten", "config": {}, "inputs": [[2, 3, 4]]},
    {"class_name": "Reshape", "config": {"target_shape": [4, -1]}, "inputs": [[2, 6, 2]]},
    {"class_name": "Permute", "config": {"dims": [3, 1, 2]}, "inputs": [[2, 3, 4, 2]]},
    {"class_name": "RepeatVector", "config": {"n": 3}, "inputs": [[2, 4]]},
    {"class_name": "Concatenate", "config": {"axis": 1}, "inputs": [[2, 3, 2], [2, 1, 2]]},
    {"class_name": "Add", "config": {}, "inputs": [[2, 3], [2, 3], [2, 1]]},
    {"class_name": "Subtract", "config": {}, "inputs": [[2, 3], [2, 3]]},
    {"class_name": "Multiply", "config": {}, "inputs": [[2, 3], [2, 3]]},
    {"class_name": "Average", "config": {}, "inputs": [[2, 3], [2, 3]]},
    {"class_name": "Maximum", "config": {}, "inputs": [[2, 3], [2, 3]]},
    {"class_name": "Minimum", "config": {}, "inputs": [[2, 3], [2, 3]]},
    {"class_name": "MultiHeadAttention", "config": {"num_heads": 2, "key_dim": 3}, "inputs": [[2, 4, 5], [2, 3, 5]],
     "separate": True},
    {"class_name": "MultiHeadAttention", "config": {"num_heads": 2, "key_dim": 3, "use_bias": False},
     "inputs": [[2, 4, 5], [2, 4, 5]], "separate": True, "call": {"use_causal_mask": True}},
    {"class_name": "GroupQueryAttention", "config": {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2},
     "inputs": [[2, 4, 5], [2, 3, 5]], "separate": True},
]
