#!/usr/bin/env python3
"""Writes what Keras computes for every loss and metric, in float64, to
tests/golden/keras/losses.json and metrics.json. README.md states inputs and fields.

  KERAS_BACKEND=jax python losses_metrics.py [losses|metrics ...]
"""
import float64  # before JAX

import json
import pathlib
import re
import sys
import textwrap

import jax
import jax.numpy as jnp
import keras
import numpy as np

import splitmix

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "keras"
SAMPLES = 12
BATCHES = [slice(0, 5), slice(5, 9), slice(9, 12)]


def signed(seed, *shape, scale=1.0):
    return np.round(splitmix.signed(seed, (SAMPLES, *shape), scale).astype(np.float64), 3)


def unit(seed, *shape):
    """Off the thresholds that the cases use, and inside of (0, 1)."""
    return 0.0137 + 0.97 * np.round(splitmix.unit(seed, (SAMPLES, *shape)).astype(np.float64), 2)


def rows(x):
    return np.round(x / x.sum(-1, keepdims=True), 4)


def classes(seed, count, *shape):
    return splitmix.below(seed, count, (SAMPLES, *shape)).astype(np.float64)


def one_hot(ids, count):
    return np.eye(count)[ids.astype(int)]


def unit_length(x):
    return np.round(x / np.linalg.norm(x, axis=-1, keepdims=True), 5)


def exact(ids):
    """Probabilities that are exactly 0 and 1, wrong in every third row."""
    return one_hot((ids + (np.arange(SAMPLES) % 3 == 0)) % 3, 3)


def tied(real, guess):
    """Every second number is right."""
    return np.where(np.arange(real.size).reshape(real.shape) % 2 == 0, real, guess)


def ctc_labels():
    labels = 1 + splitmix.below(41, 4, (SAMPLES, 3)).astype(np.float64)
    labels[1, 2] = labels[4, 1] = labels[4, 2] = 0  # padding
    labels[5, 1] = labels[5, 0]  # a repeated label needs a blank between
    return labels


INPUTS = {
    "real": signed(1, 3, scale=2.0), "guess": signed(2, 3, scale=2.0),
    "positive": np.abs(signed(3, 3, scale=2.0)), "positive_guess": 0.01 + np.abs(signed(4, 3, scale=2.0)),
    "steps": signed(5, 2, 3), "steps_guess": signed(6, 2, 3),
    "column": signed(7), "column_guess": signed(8, 1),
    "binary": classes(9, 2, 3), "probabilities": unit(10, 3), "logits": signed(11, 3, scale=4.0),
    "bit": classes(12, 2, 1), "probability": unit(13, 1),
    "ids": classes(14, 3), "id_column": classes(14, 3, 1), "distribution": rows(unit(15, 3)),
    "one_hot": one_hot(classes(14, 3), 3), "target_distribution": rows(unit(16, 3)),
    "step_ids": classes(17, 3, 2), "step_distribution": rows(unit(18, 2, 3)),
    "guessed_ids": classes(19, 4), "step_guessed_ids": classes(20, 3, 2),
    "embeddings": unit_length(signed(21, 4)), "labels": classes(22, 3),
    "tied": tied(signed(1, 3, scale=2.0), signed(2, 3, scale=2.0)), "exact": exact(classes(14, 3)),
    "exact_binary": classes(9, 2, 3) * (np.arange(SAMPLES) % 4 != 0)[:, None],
    "ctc_labels": ctc_labels(), "ctc_logits": signed(42, 6, 5, scale=2.0),
}
WEIGHTS = np.round(0.1 + splitmix.unit(30, (SAMPLES,)).astype(np.float64), 2)
WEIGHTS[3] = 0.0
STEP_WEIGHTS = np.round(splitmix.unit(31, (SAMPLES, 2)).astype(np.float64), 2)

REDUCTIONS = ["sum_over_batch_size", "mean_with_sample_weight", "sum"]
LIKE = {"step_weights": STEP_WEIGHTS, "weights": WEIGHTS}

LOSSES = [
    *[(name, {}, "real", "guess") for name in
      ("MeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError", "LogCosh", "Huber")],
    ("Huber", {"delta": 0.3}, "real", "guess"),
    ("MeanSquaredError", {}, "steps", "steps_guess"), ("MeanAbsoluteError", {}, "column", "column_guess"),
    ("MeanSquaredLogarithmicError", {}, "positive", "positive_guess"),
    ("Poisson", {}, "positive", "positive_guess"),
    ("CosineSimilarity", {}, "real", "guess"), ("CosineSimilarity", {"axis": 1}, "steps", "steps_guess"),
    ("KLDivergence", {}, "target_distribution", "distribution"),
    ("Hinge", {}, "binary", "guess"), ("Hinge", {}, "real", "guess"),
    ("SquaredHinge", {}, "binary", "guess"), ("CategoricalHinge", {}, "one_hot", "guess"),
    ("BinaryCrossentropy", {}, "binary", "probabilities"),
    ("BinaryCrossentropy", {"label_smoothing": 0.2, "axis": 0}, "binary", "probabilities"),
    ("BinaryCrossentropy", {"from_logits": True}, "bit", "column_guess"),
    ("BinaryFocalCrossentropy", {}, "binary", "probabilities"),
    ("BinaryFocalCrossentropy", {"apply_class_balancing": True, "alpha": 0.3, "gamma": 1.5}, "binary",
     "probabilities"),
    ("BinaryFocalCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, "binary", "logits"),
    ("CategoricalCrossentropy", {}, "one_hot", "distribution"),
    ("CategoricalCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, "one_hot", "logits"),
    ("CategoricalFocalCrossentropy", {}, "one_hot", "distribution"),
    ("CategoricalFocalCrossentropy", {"alpha": 0.5, "gamma": 3.0, "label_smoothing": 0.1}, "one_hot",
     "probabilities"),
    ("CategoricalFocalCrossentropy", {"from_logits": True}, "one_hot", "logits"),
    ("SparseCategoricalCrossentropy", {}, "ids", "distribution"),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, "id_column", "logits"),
    ("SparseCategoricalCrossentropy", {"ignore_class": 1}, "step_ids", "step_distribution"),
    ("CategoricalGeneralizedCrossEntropy", {}, "ids", "distribution"),
    ("CategoricalGeneralizedCrossEntropy", {"q": 0.8}, "ids", "distribution"),
    ("Dice", {}, "binary", "probabilities"), ("Dice", {"axis": -1}, "binary", "probabilities"),
    ("Tversky", {}, "binary", "probabilities"),
    ("Tversky", {"alpha": 0.3, "beta": 0.7, "axis": [1]}, "binary", "probabilities"),
    ("Circle", {}, "labels", "embeddings"),
    ("Circle", {"gamma": 8.0, "margin": 0.25, "remove_diagonal": False}, "labels", "embeddings"),
    ("CTC", {}, "ctc_labels", "ctc_logits"),
    # On kinks, and at probabilities of exactly 0 and 1.
    ("MeanAbsoluteError", {}, "real", "tied"), ("MeanAbsolutePercentageError", {}, "real", "tied"),
    ("KLDivergence", {}, "target_distribution", "exact"),
    ("BinaryCrossentropy", {}, "binary", "exact_binary"), ("BinaryFocalCrossentropy", {}, "binary", "exact_binary"),
    ("CategoricalCrossentropy", {}, "one_hot", "exact"), ("CategoricalFocalCrossentropy", {}, "one_hot", "exact"),
    ("SparseCategoricalCrossentropy", {}, "ids", "exact"),
]

THRESHOLDS = {"thresholds": [0.7, 0.25, 0.4]}  # in no order
METRICS = [
    *[(name, {}, "real", "guess") for name in
      ("MeanSquaredError", "RootMeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError",
       "LogCoshError", "CosineSimilarity", "PearsonCorrelation", "ConcordanceCorrelation", "R2Score")],
    ("RootMeanSquaredError", {}, "steps", "steps_guess"), ("MeanAbsoluteError", {}, "column", "column_guess"),
    ("CosineSimilarity", {"axis": 1}, "steps", "steps_guess"),
    ("PearsonCorrelation", {"axis": 1}, "steps", "steps_guess"),
    ("MeanSquaredLogarithmicError", {}, "positive", "positive_guess"),
    ("Poisson", {}, "positive", "positive_guess"),
    ("KLDivergence", {}, "target_distribution", "distribution"),
    ("Hinge", {}, "binary", "guess"), ("SquaredHinge", {}, "binary", "guess"),
    ("CategoricalHinge", {}, "one_hot", "guess"),
    ("BinaryCrossentropy", {}, "binary", "probabilities"),
    ("BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.2}, "binary", "logits"),
    ("CategoricalCrossentropy", {}, "one_hot", "distribution"),
    ("CategoricalCrossentropy", {"label_smoothing": 0.1, "from_logits": True}, "one_hot", "logits"),
    ("SparseCategoricalCrossentropy", {}, "ids", "distribution"),
    ("SparseCategoricalCrossentropy", {"ignore_class": 1}, "ids", "distribution"),
    ("Accuracy", {}, "ids", "guessed_ids"),
    ("BinaryAccuracy", {}, "binary", "probabilities"), ("BinaryAccuracy", {"threshold": 0.3}, "bit", "probability"),
    ("CategoricalAccuracy", {}, "one_hot", "distribution"),
    ("SparseCategoricalAccuracy", {}, "ids", "distribution"),
    ("SparseCategoricalAccuracy", {}, "step_ids", "step_distribution"),
    ("TopKCategoricalAccuracy", {"k": 2}, "one_hot", "distribution"),
    ("SparseTopKCategoricalAccuracy", {"k": 2}, "ids", "distribution"),
    *[(name, config, "binary", "probabilities") for name in
      ("TruePositives", "FalsePositives", "TrueNegatives", "FalseNegatives")
      for config in ({}, THRESHOLDS)],
    ("TruePositives", {"thresholds": [0.0, 0.5, 1.0]}, "binary", "probabilities"),
    *[(name, config, "binary", "probabilities") for name in ("Precision", "Recall")
      for config in ({}, {"thresholds": 0.3}, THRESHOLDS, {"thresholds": [0.0, 0.25, 0.5, 0.75, 1.0]},
                     {"top_k": 2}, {"class_id": 1}, {"top_k": 1, "class_id": 2, "thresholds": [0.5]})],
    ("Precision", {}, "bit", "probability"),
    *[("AUC", config, "binary", "probabilities") for config in
      ({}, {"curve": "PR"}, {"curve": "PRGAIN"}, {"summation_method": "minoring"},
       {"summation_method": "majoring", "num_thresholds": 20}, {"curve": "PR", "summation_method": "majoring"},
       {"curve": "PR", "summation_method": "minoring"}, {"thresholds": [0.6, 0.2, 0.35]},
       {"thresholds": [0.25, 0.5, 0.75], "curve": "PR"}, {"label_weights": [0.2, 0.5, 2.0]},
       {"multi_label": True}, {"multi_label": True, "num_labels": 3, "label_weights": [0.2, 0.5, 2.0]},
       {"multi_label": True, "thresholds": [0.6, 0.2], "curve": "PR"})],
    ("AUC", {"from_logits": True}, "binary", "logits"), ("AUC", {"num_thresholds": 7}, "bit", "probability"),
    *[(name, {argument: value, **extra}, "binary", "probabilities")
      for name, argument in (("SensitivityAtSpecificity", "specificity"), ("SpecificityAtSensitivity", "sensitivity"),
                             ("PrecisionAtRecall", "recall"), ("RecallAtPrecision", "precision"))
      for value, extra in ((0.5, {}), (0.8, {"num_thresholds": 11}), (0.6, {"class_id": 1}),
                           (0.4, {"num_thresholds": 1}))],
    *[("F1Score", config, "one_hot", "distribution") for config in
      ({}, {"average": "micro", "threshold": 0.4}, {"average": "macro"}, {"average": "weighted"})],
    *[("FBetaScore", config, "binary", "probabilities") for config in
      ({"beta": 2.0}, {"beta": 0.5, "threshold": 0.6, "average": "weighted"}, {"average": "micro"})],
    ("IoU", {"num_classes": 3, "target_class_ids": [0, 2]}, "ids", "guessed_ids"),
    ("IoU", {"num_classes": 3, "target_class_ids": [1], "ignore_class": 2, "dtype": "float64"}, "step_ids",
     "step_guessed_ids"),
    ("IoU", {"num_classes": 3, "target_class_ids": [0, 1], "sparse_y_pred": False}, "ids", "distribution"),
    ("BinaryIoU", {}, "bit", "probability"),
    ("BinaryIoU", {"target_class_ids": [1], "threshold": 0.3, "dtype": "float64"}, "bit", "probability"),
    ("MeanIoU", {"num_classes": 4}, "ids", "guessed_ids"),
    ("OneHotIoU", {"num_classes": 3, "target_class_ids": [1, 2]}, "one_hot", "distribution"),
    ("OneHotMeanIoU", {"num_classes": 3, "dtype": "float64"}, "one_hot", "distribution"),
    ("OneHotMeanIoU", {"num_classes": 3, "sparse_y_pred": True}, "one_hot", "ids"),
    ("R2Score", {"class_aggregation": None}, "real", "guess"),
    ("R2Score", {"class_aggregation": "variance_weighted_average", "num_regressors": 2}, "real", "guess"),
    ("R2Score", {}, "column", "column_guess"),
]
VALUES = [("Mean", "real"), ("Sum", "real"), ("Mean", "steps"), ("Sum", "steps")]


def flat(array):
    return [float(v) for v in np.asarray(array, np.float64).reshape(-1)]


def tensor(array):
    return {"shape": list(np.shape(array)), "values": flat(array)}


def write(name, cases):
    used = {c[key] for c in cases for key in ("y_true", "y_pred", "sample_weight") if key in c}
    tables = {**INPUTS, **LIKE}
    content = {"made_with": {"keras": keras.__version__, "jax": jax.__version__},
               "batches": [[b.start, b.stop] for b in BATCHES],
               "inputs": {key: tensor(value) for key, value in tables.items() if key in used}, "cases": cases}
    text = json.dumps(content, indent=1, allow_nan=False)

    def fold(match):
        items = " ".join(match.group(1).split())
        return "[" + textwrap.fill(items, 120, break_long_words=False, break_on_hyphens=False) + "]"

    text = re.sub(r"\[\s*([^\[\]{}]*?)\s*\]", fold, text)
    (GOLDEN / f"{name}.json").write_text(text + "\n")
    print(f"{name}: {len(cases)} cases, {len(text)} bytes")


def losses():
    """The values of samples once; then each reduction with and without weights; the gradient to
    y_pred for the default reduction."""
    cases = []
    for name, config, y_name, p_name in LOSSES:
        y_true, y_pred = jnp.asarray(INPUTS[y_name]), jnp.asarray(INPUTS[p_name])
        make = getattr(keras.losses, name)
        if name == "Tversky" and keras.__version__ < "3.16":  # where alpha and beta are exchanged
            def make(alpha=0.5, beta=0.5, **others):
                return keras.losses.Tversky(alpha=beta, beta=alpha, **others)
        start = {"class_name": name, "config": config, "y_true": y_name, "y_pred": p_name}
        cases.append({**start, "unreduced": tensor(make(**config, reduction=None)(y_true, y_pred))})
        kinds = [None] if config.get("axis") in (0, 1, [1]) else [None, "weights"]
        if y_name.startswith("step"):
            kinds = [k and "step_weights" for k in kinds]
        for reduction in REDUCTIONS:
            loss = make(**config, reduction=reduction)
            for kind in kinds:
                weight = None if kind is None else jnp.asarray(LIKE[kind])
                value, gradient = jax.value_and_grad(lambda p: loss(y_true, p, weight))(y_pred)
                case = {**start, "reduction": reduction, "value": float(value)}
                if kind:
                    case["sample_weight"] = kind
                if reduction == REDUCTIONS[0]:
                    case["gradient"] = tensor(gradient)
                cases.append(case)
    write("losses", cases)


def metrics():
    """The running result after each of three batches."""
    cases = []
    for name, config, y_name, p_name in METRICS:
        for kind in (None, "weights"):
            if kind and y_name.startswith("step"):
                kind = "step_weights"
            # Keras takes weights of these for integers, or of another shape.
            if kind and ("IoU" in name and "dtype" not in config or name == "R2Score" and "num_regressors" in config
                         or config.get("axis") == 1):
                continue
            metric = getattr(keras.metrics, name)(**config)
            results = []
            for batch in BATCHES:
                weight = None if kind is None else LIKE[kind][batch]
                metric.update_state(INPUTS[y_name][batch], INPUTS[p_name][batch], weight)
                results.append(flat(metric.result()))
            case = {"class_name": name, "config": config, "y_true": y_name, "y_pred": p_name,
                    "states": [[v.name, list(v.shape)] for v in metric.variables], "results": results}
            if kind:
                case["sample_weight"] = kind
            cases.append(case)
    for name, p_name in VALUES:
        for kind in (None, "step_weights" if p_name == "steps" else "weights"):
            metric = getattr(keras.metrics, name)()
            results = []
            for batch in BATCHES:
                metric.update_state(INPUTS[p_name][batch], None if kind is None else LIKE[kind][batch])
                results.append(flat(metric.result()))
            case = {"class_name": name, "config": {}, "y_true": p_name, "y_pred": p_name,
                    "states": [[v.name, list(v.shape)] for v in metric.variables], "results": results}
            if kind:
                case["sample_weight"] = kind
            cases.append(case)
    write("metrics", cases)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or ["losses", "metrics"]:
        {"losses": losses, "metrics": metrics}[chosen]()
