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
    ("relu", {"max_value": 1.0}), ("relu", {"max_value": 3.0, "threshold": 0.5}),
    ("relu", {"max_value": 0.5, "threshold": -1.0}),
]
ROW_ACTIVATIONS = [("softmax", {}), ("softmax", {"axis": 0}), ("log_softmax", {}), ("sparsemax", {}),
                   ("glu", {}), ("glu", {"axis": -1})]

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

# (length, bands) and the arguments of STFT.
STFT_WINDOWS = ["boxcar", "hann", "hamming", "blackman", "nuttall", "blackmanharris", "flattop", "bartlett",
                "triang", "cosine"]
STFTS = ([((6, 4), {"window": window, "periodic": periodic}) for window in STFT_WINDOWS
          for periodic in (False, True)]
         + [((7, 3), {"window": window}) for window in ("triang", "bartlett", "cosine")]
         + [((9, 9), {"side": "imag", "scaling": "spectrum"}), ((5, 2), {"scaling": None}),
            ((5, 6), {"side": "imag", "window": None}), ((1, 3), {}), ((40, 17), {"window": "hamming"})])
