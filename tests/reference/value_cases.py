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


SCHEDULE_STEPS = 40
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
    ("ExponentialDecay", {"initial_learning_rate": 1.0, "decay_steps": 7, "decay_rate": 0.96}),
    ("InverseTimeDecay", {"initial_learning_rate": 0.3, "decay_steps": 3, "decay_rate": 1.5}),
    ("PiecewiseConstantDecay", {"boundaries": [3], "values": [0.5, 0.25]}),
    ("PiecewiseConstantDecay", {"boundaries": [0, 4, 17], "values": [4.0, 3.0, 2.0, 1.0]}),
    ("PolynomialDecay", {"initial_learning_rate": 0.2, "decay_steps": 7, "end_learning_rate": 0.0, "power": 0.5}),
    ("PolynomialDecay", {"initial_learning_rate": 0.2, "decay_steps": 7, "cycle": True}),
    ("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 10, "alpha": 0.2}),
    ("CosineDecay", {"initial_learning_rate": 0.1, "decay_steps": 15, "warmup_steps": 5}),
    ("CosineDecay", {"initial_learning_rate": 0.05, "decay_steps": 15, "warmup_target": 0.1, "warmup_steps": 0}),
    ("CosineDecay", {"initial_learning_rate": 0.02, "decay_steps": 12, "warmup_target": 0.01, "warmup_steps": 9}),
    ("CosineDecayRestarts", {"initial_learning_rate": 0.1, "first_decay_steps": 3, "t_mul": 1.5, "m_mul": 0.8}),
]
