"""Sets Keras on JAX to compute in float64; import it before JAX.

Keras' type promotion rounds float64 to float32 in means, tanh and mixtures with Python numbers. The goldens are
compared more closely than that, so float64 keeps its type here.
"""
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import keras
from keras.src.backend.common import dtypes

dtypes.BIT64_TO_BIT32_DTYPE.pop("float64")
keras.config.set_floatx("float64")
