"""The cases of layers.py: class, arguments, shapes of the inputs (batch included)."""

import operation_cases

IMAGE = [2, 6, 5, 3]
WIDE = [2, 7, 8, 4]
VOLUME = [2, 4, 5, 3, 2]
STEPS = [2, 9, 3]


def case(class_name, inputs, config=None, **more):
    """more: call (arguments of the call), integers (inputs are below it), scale, separate; states (the inputs after
    the first are), masked (some steps of the first input are zeros, which a Masking leaves out), outputs (names of all
    outputs: they are flattened and joined)."""
    if not isinstance(inputs[0], list):
        inputs = [inputs]
    return {"class_name": class_name, "config": config or {}, "inputs": inputs, **more}


def core():
    return [
        case("Dense", [3, 5], {"units": 4, "activation": "relu"}),
        case("Dense", [2, 3, 5], {"units": 4, "use_bias": False}),
        case("EinsumDense", [2, 3, 5], {"equation": "abc,cd->abd", "output_shape": [None, 4], "bias_axes": "d"}),
        case("EinsumDense", [3, 5], {"equation": "ab,bcd->acd", "output_shape": [2, 3], "bias_axes": "c"}),
        case("EinsumDense", [2, 3, 5], {"equation": "...x,xy->...y", "output_shape": 4, "activation": "tanh"}),
        case("Embedding", [2, 5], {"input_dim": 7, "output_dim": 3}, integers=7),
        case("Dense", [2, 3, 5], {"units": 4, "activation": "relu", "lora_rank": 2}),
        case("EinsumDense", [2, 3, 5], {"equation": "abc,cd->abd", "output_shape": [None, 4], "bias_axes": "d",
                                        "lora_rank": 2, "lora_alpha": 6}),
        case("EinsumDense", [3, 5], {"equation": "ab,bcd->acd", "output_shape": [2, 3], "lora_rank": 2}),
        case("EinsumDense", [3, 5], {"equation": "ab,cb->ac", "output_shape": [4], "lora_rank": 2, "lora_alpha": 3}),
        case("Embedding", [2, 5], {"input_dim": 7, "output_dim": 3, "lora_rank": 2}, integers=7),
        case("ReversibleEmbedding", [2, 5], {"input_dim": 7, "output_dim": 3, "lora_rank": 2}, integers=7),
        case("Conv1D", [2, 6, 3], {"filters": 4, "kernel_size": 2, "lora_rank": 2, "lora_alpha": 4}),
        case("Conv2D", [2, 4, 5, 4], {"filters": 4, "kernel_size": 3, "groups": 2, "lora_rank": 3, "lora_alpha": 2}),
        case("Dot", [[3, 4], [3, 4]], {"axes": 1}),
        case("Dot", [[2, 3, 4], [2, 4, 5]], {"axes": [2, 1]}),
        case("Dot", [[2, 3, 4], [2, 5, 4]], {"axes": [2, 2], "normalize": True}),
        case("Normalization", [4, 3], {"mean": [0.5, -1.0, 2.0], "variance": [4.0, 0.25, 1.0]}),
        case("Normalization", [4, 3], {"axis": None, "mean": 0.5, "variance": 4.0, "invert": True}),
        case("Rescaling", [2, 3], {"scale": 0.25, "offset": -1.0}),
        case("Rescaling", [2, 3], {"scale": [0.25, 2.0, -1.0], "offset": [0.5, 0.0, 1.0]}),
        case("CategoryEncoding", [3, 4], {"num_tokens": 5}, integers=6),
        case("CategoryEncoding", [3, 4], {"num_tokens": 5, "output_mode": "count"}, integers=5),
        case("CategoryEncoding", [3, 1], {"num_tokens": 4, "output_mode": "one_hot"}, integers=4),
        case("CategoryEncoding", [2, 3], {"num_tokens": 4, "output_mode": "one_hot"}, integers=4),
        case("Discretization", [3, 4], {"bin_boundaries": [-1.0, 0.25, 1.5], "output_mode": "count"}),
        case("Discretization", [3, 1], {"bin_boundaries": [0.5], "output_mode": "one_hot"}),
        case("Discretization", [2, 3], {"bin_boundaries": [-0.5, 0.5], "output_mode": "one_hot"}),
        case("CategoryEncoding", [2, 3, 4], {"num_tokens": 5, "output_mode": "count"}, integers=5),
        case("Discretization", [2, 3, 4], {"bin_boundaries": [-0.5, 0.5], "output_mode": "multi_hot"}),
        *spectrograms(),
        case("Identity", [2, 3]),
        case("ActivityRegularization", [2, 3], {"l1": 0.25, "l2": 0.5}),
        case("Activation", [2, 3], {"activation": "gelu"}),
        case("Activation", [2, 3], {"activation": "selu"}),
        case("Flatten", [2, 3, 4]),
        case("Flatten", [2, 3, 4, 2], {"data_format": "channels_first"}),
        case("Reshape", [2, 6, 2], {"target_shape": [4, -1]}),
        case("Permute", [2, 3, 4, 2], {"dims": [3, 1, 2]}),
        case("RepeatVector", [2, 4], {"n": 3}),
        case("Concatenate", [[2, 3, 2], [2, 1, 2]], {"axis": 1}),
        case("Concatenate", [[2, 3], [2, 1]]),
        case("Add", [[2, 3], [2, 3], [2, 1]]),
    ] + [case(name, [[2, 3], [2, 3]]) for name in ("Subtract", "Multiply", "Average", "Maximum", "Minimum")]


def spectrograms():
    def stft(inputs, **config):
        return case("STFTSpectrogram", inputs, {"frame_length": 5, **config})

    def mel(**config):  # Keras computes the bins in float32
        return case("MelSpectrogram", [2, 21], {"fft_length": 8, "sequence_stride": 3, "sampling_rate": 4000,
                                                "num_mel_bins": 3, **config}, computed_in="float32")

    signal, first = [2, 11, 2], [2, 2, 11]
    return [
        stft(signal),
        stft(signal, mode="magnitude", padding="same", frame_step=3, fft_length=8, window="hamming"),
        stft(signal, mode="psd", expand_dims=True, scaling="spectrum", periodic=True),
        stft(first, mode="real", data_format="channels_first", scaling=None),
        stft(first, mode="imag", data_format="channels_first", expand_dims=True, window=None),
        stft(signal, mode="stft", trainable=False, frame_length=4, frame_step=4),
        stft(signal, mode="angle", padding="same"),
        mel(),
        mel(sequence_length=5, window="hamming", power_to_db=False),
        mel(mag_exp=1.0, min_freq=100.0, max_freq=1500, top_db=20.0, ref_power=2.0, window=None),
    ]


def recurrent():
    sequence = [3, 5, 4]
    out = []
    for name in ("SimpleRNN", "LSTM", "GRU"):
        states = [[3, 3]] * (2 if name == "LSTM" else 1)
        out += [
            case(name, sequence, {"units": 3}),
            case(name, sequence, {"units": 3, "return_sequences": True}),
            case(name, sequence, {"units": 3, "go_backwards": True, "return_sequences": True}),
            case(name, sequence, {"units": 2, "activation": "sigmoid", "use_bias": False}),
            case(name, [2, 1, 3], {"units": 2, "return_sequences": True}),
            case(name, [sequence] + states, {"units": 3}, states=True),
        ]
    return out + [
        case("LSTM", sequence, {"units": 3, "recurrent_activation": "tanh", "unit_forget_bias": False}),
        case("GRU", sequence, {"units": 3, "reset_after": False, "return_sequences": True}),
        case("GRU", sequence, {"units": 3, "reset_after": False, "go_backwards": True}),
        case("GRU", [sequence, [3, 3]], {"units": 3, "reset_after": False, "use_bias": False}, states=True),
        case("LSTM", sequence, {"units": 3, "recurrent_activation": "hard_sigmoid", "activation": "softsign"}),
        case("GRU", sequence, {"units": 3, "recurrent_activation": "hard_sigmoid", "activation": "elu"}),
        case("SimpleRNN", sequence, {"units": 3, "activation": "softplus", "return_sequences": True}),
        # Rates that only training has, and a rate of 1, at which Keras drops nothing.
        case("LSTM", sequence, {"units": 3, "dropout": 0.5, "recurrent_dropout": 0.5}, call={"training": False}),
        case("LSTM", sequence, {"units": 3, "dropout": 1.0, "recurrent_dropout": 1.0}, call={"training": True}),
        case("GRU", sequence, {"units": 3, "reset_after": False, "recurrent_dropout": 1.0}, call={"training": True}),
        *[case("GRU", sequence, {"units": 3, "return_sequences": True, **config}, masked=True)
          for config in ({}, {"reset_after": False, "go_backwards": True})],
    ] + cells() + conv_lstm() + masked_states() + penalized()


def penalized():
    """A penalty counts every output, states too."""
    sequence, states = [3, 5, 4], ["state_h", "state_c"]
    inner = {"LSTM": {"name": "lstm", "units": 3, "return_state": True}}
    return [
        case("LSTM", sequence, {"units": 3, "return_sequences": True, "return_state": True, "activity_regularizer": "l2"},
             outputs=["", *states]),
        case("Bidirectional", sequence, {"layer": inner, "merge_mode": None, "activity_regularizer": "l1"},
             outputs=["", "backward", *[f"{way}_{state[6:]}" for way in ("forward", "backward") for state in states]]),
    ]


def masked_states():
    """A mask beside initial states. Keras leaves the mask of a Masking out there: it is given to the call."""
    sequence, state = [3, 5, 4], [3, 3]
    out = []
    for name, more in (("SimpleRNN", {}), ("LSTM", {}), ("GRU", {}), ("GRU", {"reset_after": False})):
        names = ["", "state_h", "state_c"] if name == "LSTM" else ["", "state_h"]
        inputs = [sequence] + [state] * (len(names) - 1)
        out += [case(name, inputs, {"units": 3, **more, **config}, states=True, masked=True,
                     **({"outputs": names} if "return_state" in config else {}))
                for config in ({"go_backwards": True}, {"return_sequences": True, "return_state": True},
                               {"return_sequences": True, "go_backwards": True, "zero_output_for_mask": True},
                               {"return_state": True, "go_backwards": True})]
    return out + [case("Bidirectional", [sequence] + [state] * (2 * count), {
        "layer": {name: {"name": name.lower(), "units": 3, "return_sequences": True, "return_state": True}}},
                       states=True, masked=True, outputs=outputs)
                  for name, count, outputs in (
                      ("LSTM", 2, ["", "forward_h", "forward_c", "backward_h", "backward_c"]),
                      ("GRU", 1, ["", "forward_h", "backward_h"]))]


def conv_lstm():
    images = [2, 3, 5, 4, 2]

    def case_of(rank, inputs=images, more=None, **config):
        return case(f"ConvLSTM{rank}D", inputs, {"filters": 2, "kernel_size": 3, **config}, **(more or {}))

    state, first_state = [2, 3, 2, 2], [2, 2, 3, 2]
    return [
        case_of(1, [2, 4, 6, 3]),
        case_of(1, [2, 3, 3, 6], kernel_size=2, strides=2, data_format="channels_first", return_sequences=True),
        case_of(1, [2, 3, 9, 2], dilation_rate=3, padding="same", use_bias=False, go_backwards=True),
        case_of(2),
        case_of(2, return_sequences=True, padding="same", kernel_size=[2, 4]),
        case_of(2, padding="same", strides=[2, 1], go_backwards=True, return_sequences=True),
        case_of(2, [2, 3, 2, 5, 4], {"outputs": ["", "state_h", "state_c"]}, data_format="channels_first",
                return_state=True),
        case_of(2, [images, state, state], {"states": True}, activation="relu", recurrent_activation="hard_sigmoid"),
        case_of(2, [[2, 3, 2, 5, 4], first_state, first_state], {"states": True}, data_format="channels_first"),
        case_of(2, dilation_rate=[1, 2], kernel_size=[3, 2], unit_forget_bias=False, activation="softsign"),
        case_of(2, [3, 1, 4, 4, 1], filters=3, kernel_size=1),
        case_of(2, more={"call": {"training": False}}, dropout=0.5, recurrent_dropout=0.5),
        case_of(2, more={"call": {"training": True}}, dropout=1.0, recurrent_dropout=1.0),
        case_of(3, [2, 2, 4, 3, 3, 2], kernel_size=[3, 1, 2], return_sequences=True),
        case_of(3, [2, 3, 2, 3, 4, 3], padding="same", kernel_size=2, data_format="channels_first"),
        case("Bidirectional", images, {"layer": {"ConvLSTM2D": {
            "name": "conv", "filters": 2, "kernel_size": 3, "return_sequences": True}}}),
        case("Bidirectional", images, {"merge_mode": "sum", "layer": {"ConvLSTM2D": {
            "name": "conv", "filters": 2, "kernel_size": 2, "return_state": True}}},
             outputs=["", "forward_h", "forward_c", "backward_h", "backward_c"]),
        case("TimeDistributed", [2, 2, 3, 5, 2], {"layer": {"ConvLSTM1D": {
            "name": "conv", "filters": 2, "kernel_size": 2, "return_sequences": True}}}),
    ]


def cells():
    """RNN with one cell, and with several."""
    sequence = [3, 5, 4]

    def cell(class_name, units=3, **config):
        return {class_name: {"name": config.pop("name", None) or class_name.lower(), "units": units, **config}}

    def rnn(given, inputs=sequence, more=None, **config):
        return case("RNN", inputs, {"cell": given, **config}, **(more or {}))

    def stack(cells):
        return {"StackedRNNCells": {"name": "stack", "cells": cells}}

    two = stack([cell("LSTMCell", 3), cell("GRUCell", 2)])
    three = stack([cell("LSTMCell", 3), cell("LSTMCell", 4, name="other"), cell("SimpleRNNCell", 2)])
    states = ["", "state_1_h", "state_1_c", "state_2_h"]
    return [
        rnn(cell("SimpleRNNCell")),
        rnn(cell("LSTMCell"), return_sequences=True),
        rnn(cell("GRUCell", reset_after=False), go_backwards=True),
        rnn(cell("LSTMCell"), more={"outputs": ["", "state_h", "state_c"]}, return_state=True),
        rnn(cell("LSTMCell"), [sequence, [3, 3], [3, 3]], {"states": True}),
        rnn(two),
        rnn(three, return_sequences=True, go_backwards=True),
        rnn(two, more={"masked": True, "outputs": states}, return_sequences=True, return_state=True),
        rnn(three, more={"masked": True}, return_sequences=True, zero_output_for_mask=True),
        rnn(two, [sequence, [3, 3], [3, 3], [3, 2]], {"states": True, "nesting": [2, 1]}),
        case("Bidirectional", sequence, {"layer": {"RNN": {"name": "rnn", "cell": two, "return_sequences": True}}}),
        case("TimeDistributed", [2, 3, 4, 2], {"layer": {"RNN": {"name": "rnn", "cell": cell("GRUCell", 2)}}}),
    ]


def wrappers():
    sequence = [3, 5, 4]
    masked = {"masked": True}

    def inner(class_name, **config):
        return {class_name: {"name": class_name.lower(), **config}}

    def both(layer, inputs=sequence, merge_mode="concat", more=None, **config):
        return case("Bidirectional", inputs, {"layer": layer, "merge_mode": merge_mode, **config}, **(more or {}))

    every_state = ["", "forward_h", "forward_c", "backward_h", "backward_c"]
    return [
        both(inner("SimpleRNN", units=3)),
        both(inner("LSTM", units=3, return_sequences=True)),
        both(inner("GRU", units=3, return_sequences=True), merge_mode="sum"),
        both(inner("LSTM", units=3), merge_mode="mul"),
        both(inner("GRU", units=3, reset_after=False), merge_mode="ave"),
        both(inner("GRU", units=2, go_backwards=True, return_sequences=True),
             backward_layer={"SimpleRNN": {"name": "other", "units": 3, "return_sequences": True}}),
        both(inner("LSTM", units=3, return_sequences=True), more=masked),
        both(inner("GRU", units=3), more=masked),
        both(inner("LSTM", units=2), backward_layer={"GRU": {"name": "other", "units": 4, "go_backwards": True}}),
        both(inner("LSTM", units=3), [sequence] + [[3, 3]] * 4, more={"states": True}),
        both(inner("LSTM", units=3, return_state=True), more={"outputs": every_state}),
        both(inner("GRU", units=3, return_state=True, return_sequences=True), merge_mode=None,
             more={"outputs": ["", "backward", "forward_h", "backward_h"], "masked": True}),
        case("LSTM", sequence, {"units": 3, "return_state": True}, outputs=["", "state_h", "state_c"]),
        case("GRU", sequence, {"units": 3, "return_state": True, "return_sequences": True, "go_backwards": True},
             outputs=["", "state_h"]),
        case("SimpleRNN", sequence, {"units": 3, "return_state": True}, outputs=["", "state_h"], **masked),
        case("LSTM", sequence, {"units": 3, "return_sequences": True}, **masked),
        case("LSTM", sequence, {"units": 3, "return_sequences": True, "zero_output_for_mask": True}, **masked),
        case("GRU", sequence, {"units": 3, "go_backwards": True}, **masked),
        case("TimeDistributed", sequence, {"layer": inner("Dense", units=3, activation="tanh")}),
        case("TimeDistributed", [2, 3, 6, 5, 2], {"layer": inner("Conv2D", filters=3, kernel_size=3)}),
        case("TimeDistributed", [2, 3, 4, 2], {"layer": inner("LSTM", units=3)}),
        case("TimeDistributed", [2, 3, 4, 2],
             {"layer": {"Bidirectional": {"name": "both", "layer": inner("GRU", units=2)}}}),
        case("TimeDistributed", [2, 3, 4, 2], {"layer": inner("Flatten")}),
        case("LayerScale", [2, 3, 4], {"init_values": 0.1, "projection_dim": 4}),
        case("StochasticDepth", [2, 3, 4], {"drop_path_rate": 0.3}, call={"training": False}),
        case("CustomScaleLayer", [[2, 3, 4], [2, 3, 4]], {"scale": 0.17}),
    ]


def operations():
    out = [case("Lambda", [4, 4, 5], {"function": "=" + e}, expression=e)
           for e in operation_cases.ONE]
    return out + [case("Lambda", [[4, 4, 5], [4, 4, 5]], {"function": "=" + e}, expression=e)
                  for e in operation_cases.TWO]


def activations():
    return [
        case("Softmax", [3, 4]),
        case("Softmax", [2, 3, 4], {"axis": [1, 2]}),
        case("ReLU", [3, 5]),
        case("ReLU", [3, 5], {"max_value": 1.0, "negative_slope": 0.1, "threshold": 0.25}),
        case("LeakyReLU", [3, 5]),
        case("LeakyReLU", [3, 5], {"negative_slope": 0.01}),
        case("PReLU", [2, 3, 4]),
        case("PReLU", [2, 3, 4], {"shared_axes": [1]}),
        case("PReLU", [2, 3, 2, 4], {"shared_axes": [1, 2]}),
        case("ELU", [3, 5]),
        case("ELU", [3, 5], {"alpha": 0.5}),
    ]


def convolutions():
    one = [
        case("Conv1D", STEPS, {"filters": 4, "kernel_size": 3}),
        case("Conv1D", STEPS, {"filters": 2, "kernel_size": 4, "strides": 2, "padding": "same"}),
        case("Conv1D", [2, 7, 3], {"filters": 4, "kernel_size": 3, "padding": "causal", "dilation_rate": 2}),
        case("Conv1D", STEPS, {"filters": 4, "kernel_size": 2, "padding": "causal", "strides": 3}),
        case("Conv1D", [2, 8, 4], {"filters": 6, "kernel_size": 3, "groups": 2, "activation": "silu"}),
        case("Conv1D", [2, 3, 9], {"filters": 4, "kernel_size": 3, "data_format": "channels_first"}),
        case("Conv1D", [2, 3, 9], {"filters": 4, "kernel_size": 3, "data_format": "channels_first", "activation": "softmax"}),
    ]
    two = [
        case("Conv2D", IMAGE, {"filters": 4, "kernel_size": 3}),
        case("Conv2D", IMAGE, {"filters": 4, "kernel_size": [3, 2], "strides": 2, "padding": "same", "use_bias": False}),
        case("Conv2D", WIDE, {"filters": 2, "kernel_size": 5, "strides": [3, 2], "padding": "same"}),
        case("Conv2D", WIDE, {"filters": 2, "kernel_size": 6, "strides": 2, "use_bias": False}),
        case("Conv2D", IMAGE, {"filters": 4, "kernel_size": 2, "dilation_rate": 2, "activation": "relu"}),
        case("Conv2D", WIDE, {"filters": 2, "kernel_size": [3, 2], "dilation_rate": [2, 3], "padding": "same"}),
        case("Conv2D", [2, 5, 4, 4], {"filters": 4, "kernel_size": 3, "groups": 2, "padding": "same"}),
        case("Conv2D", [2, 5, 4, 4], {"filters": 8, "kernel_size": 2, "groups": 4, "strides": 2}),
        case("Conv2D", [1, 4, 4, 5], {"filters": 3, "kernel_size": 1, "strides": 2}),
        case("Conv2D", [2, 10, 4, 2], {"filters": 2, "kernel_size": [3, 1], "strides": [4, 1], "padding": "same"}),
    ]
    three = [
        case("Conv3D", [1, 3, 3, 3, 2], {"filters": 2, "kernel_size": 2}),
        case("Conv3D", VOLUME, {"filters": 2, "kernel_size": [2, 3, 2], "strides": [1, 2, 2], "padding": "same"}),
        case("Conv3D", VOLUME, {"filters": 2, "kernel_size": [2, 2, 1], "dilation_rate": [1, 2, 1], "groups": 2}),
    ]
    depthwise = [
        case("DepthwiseConv1D", STEPS, {"kernel_size": 3, "depth_multiplier": 2}),
        case("DepthwiseConv1D", STEPS, {"kernel_size": 2, "strides": 2, "padding": "same", "use_bias": False}),
        case("DepthwiseConv2D", IMAGE, {"kernel_size": 3, "depth_multiplier": 2, "padding": "same"}),
        case("DepthwiseConv2D", IMAGE, {"kernel_size": 3, "strides": 2, "activation": "relu"}),
        case("DepthwiseConv2D", IMAGE, {"kernel_size": 2, "dilation_rate": 2, "use_bias": False}),
        case("SeparableConv1D", STEPS, {"filters": 4, "kernel_size": 3}),
        case("SeparableConv1D", STEPS, {"filters": 2, "kernel_size": 3, "strides": 2, "padding": "same", "depth_multiplier": 2}),
        case("SeparableConv2D", IMAGE, {"filters": 4, "kernel_size": 3}),
        case("SeparableConv2D", IMAGE, {"filters": 2, "kernel_size": [3, 2], "strides": 2, "padding": "same",
                                        "depth_multiplier": 2, "use_bias": False}),
        case("SeparableConv2D", IMAGE, {"filters": 2, "kernel_size": 2, "dilation_rate": 2}),
    ]
    return one + two + three + depthwise


def transposed():
    image = [1, 3, 2, 3]
    result = []
    for config in ({"kernel_size": 3}, {"kernel_size": 3, "strides": 2}, {"kernel_size": 3, "strides": 2, "padding": "same"},
                   {"kernel_size": 2, "strides": 3}, {"kernel_size": 2, "strides": 3, "padding": "same"},
                   {"kernel_size": 1, "strides": 2, "padding": "same"}, {"kernel_size": 4, "strides": 2, "padding": "same"},
                   {"kernel_size": 3, "strides": 2, "output_padding": 1}, {"kernel_size": 3, "strides": 2, "output_padding": 0},
                   {"kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 1},
                   {"kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 0},
                   {"kernel_size": 4, "strides": 3, "padding": "same", "output_padding": 2},
                   {"kernel_size": 3, "dilation_rate": 2}, {"kernel_size": 3, "dilation_rate": 2, "padding": "same"},
                   {"kernel_size": [3, 2], "strides": [1, 2], "activation": "relu", "use_bias": False}):
        result.append(case("Conv2DTranspose", image, {"filters": 2, **config}))
    for config in ({"kernel_size": 3}, {"kernel_size": 3, "strides": 2, "padding": "same"}, {"kernel_size": 2, "strides": 3}):
        result.append(case("Conv1DTranspose", [2, 4, 3], {"filters": 2, **config}))
    for config in ({"kernel_size": 2, "strides": 2}, {"kernel_size": 3, "strides": [1, 2, 2], "padding": "same"}):
        result.append(case("Conv3DTranspose", [1, 2, 3, 2, 2], {"filters": 2, **config}))
    return result


def pooling():
    shapes = {1: STEPS, 2: IMAGE, 3: VOLUME}
    result = []
    for rank, shape in shapes.items():
        for kind in ("Max", "Average"):
            name = f"{kind}Pooling{rank}D"
            result.append(case(name, shape, {"pool_size": 2}))
            result.append(case(name, shape, {"pool_size": 3, "strides": 2, "padding": "same"}))
            result.append(case(name, shape, {"pool_size": 2, "strides": 1}))
            result.append(case(f"Global{kind}Pooling{rank}D", shape))
            result.append(case(f"Global{kind}Pooling{rank}D", shape, {"keepdims": True}))
            size = {1: 4, 2: [3, 2], 3: [2, 3, 3]}[rank]
            result.append(case(f"Adaptive{kind}Pooling{rank}D", shape, {"output_size": size}))
    result += [
        case("MaxPooling2D", IMAGE),
        case("MaxPooling2D", IMAGE, {"pool_size": [2, 3], "strides": [3, 1], "padding": "same"}),
        case("AveragePooling2D", WIDE, {"pool_size": [2, 3], "strides": [3, 2], "padding": "same"}),
        case("AdaptiveAveragePooling2D", IMAGE, {"output_size": 2}),
    ]
    return result


def spatial():
    small = [1, 2, 3, 2]
    result = [
        case("ZeroPadding1D", [2, 3, 2]), case("ZeroPadding1D", [2, 3, 2], {"padding": [2, 0]}),
        case("ZeroPadding2D", small), case("ZeroPadding2D", small, {"padding": [1, 2]}),
        case("ZeroPadding2D", small, {"padding": [[1, 0], [0, 2]]}),
        case("ZeroPadding2D", small, {"padding": 1, "data_format": "channels_first"}),
        case("ZeroPadding3D", [1, 2, 1, 2, 2], {"padding": [[1, 0], [0, 1], [1, 1]]}),
        case("Cropping1D", [2, 5, 2]), case("Cropping1D", [2, 5, 2], {"cropping": [0, 3]}),
        case("Cropping2D", [1, 3, 4, 2]), case("Cropping2D", [1, 3, 4, 2], {"cropping": [[1, 0], [0, 2]]}),
        case("Cropping2D", [1, 4, 5, 2], {"cropping": 1}),
        case("Cropping3D", [1, 3, 4, 5, 2]), case("Cropping3D", [1, 3, 4, 5, 2], {"cropping": [[1, 0], [2, 1], [0, 0]]}),
        case("UpSampling1D", [2, 3, 2], {"size": 3}), case("UpSampling2D", small),
        case("UpSampling2D", small, {"size": [1, 3]}), case("UpSampling2D", small, {"interpolation": "bilinear"}),
        case("UpSampling2D", [1, 3, 4, 2], {"interpolation": "bicubic", "size": 2}),
        case("UpSampling3D", [1, 2, 1, 2, 2], {"size": [1, 2, 3]}),
        case("CenterCrop", IMAGE, {"height": 3, "width": 4}),
        case("CenterCrop", IMAGE, {"height": 4, "width": 7}),
        case("Resizing", IMAGE, {"height": 4, "width": 4, "crop_to_aspect_ratio": True}),
        case("Resizing", IMAGE, {"height": 4, "width": 8, "pad_to_aspect_ratio": True, "fill_value": 0.5}),
        case("Resizing", IMAGE, {"height": 3, "width": 3, "antialias": True}),
        case("Resizing", IMAGE, {"height": 4, "width": 2, "antialias": True, "interpolation": "bicubic"}),
    ]
    for interpolation in ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"):
        for height, width in ((9, 4), (4, 10)):
            result.append(case("Resizing", IMAGE, {"height": height, "width": width, "interpolation": interpolation}))
    return result


def normalization():
    training, inference = {"training": True}, {"training": False}
    return [
        case("BatchNormalization", [6, 3], call=training),
        case("BatchNormalization", [6, 3], call=inference),
        case("BatchNormalization", [6, 3], {"trainable": False}, call=training),
        case("BatchNormalization", [2, 3, 4, 3], {"scale": False, "momentum": 0.5, "epsilon": 0.01}, call=training),
        case("BatchNormalization", [3, 2, 4], {"axis": 1, "center": False}, call=training),
        case("BatchNormalization", [3, 2, 4], {"axis": 1}, call=inference),
        case("BatchNormalization", [2, 3, 2, 2, 3], {"momentum": 0.9}, call=training),
        case("BatchNormalization", [6, 3], {"renorm": True}, call=training),
        case("BatchNormalization", [3, 2, 4], {
            "axis": 1, "renorm": True, "renorm_momentum": 0.8, "momentum": 0.7, "center": False,
            "renorm_clipping": {"rmin": 0.5, "rmax": 2.0, "dmax": 0.75}}, call=training),
        case("BatchNormalization", [2, 3, 4, 3], {
            "scale": False, "renorm": True, "renorm_clipping": {"rmax": 1.5}}, call=training),
        case("BatchNormalization", [6, 3], {"renorm": True}, call=inference),
        case("LayerNormalization", [3, 5]),
        case("LayerNormalization", [2, 3, 4], {"axis": [1, 2], "scale": False}),
        case("LayerNormalization", [2, 3, 4], {"axis": 1, "epsilon": 0.1, "center": False}),
        case("RMSNormalization", [3, 5]),
        case("RMSNormalization", [2, 3, 4], {"axis": [1, 2], "epsilon": 0.01}),
        case("GroupNormalization", [2, 3, 4], {"groups": 2}),
        case("GroupNormalization", [2, 3, 4], {"groups": -1}),
        case("GroupNormalization", [2, 3, 2, 6], {"groups": 3, "epsilon": 0.1, "center": False}),
        case("GroupNormalization", [2, 4, 3], {"groups": 2, "axis": 1, "scale": False}),
        case("UnitNormalization", [3, 5]),
        case("UnitNormalization", [2, 3, 4], {"axis": [1, 2]}),
        case("SpectralNormalization", [3, 5], {"layer": {"Dense": {"name": "dense", "units": 4}}}, call=training),
        case("SpectralNormalization", [3, 5], {"layer": {"Dense": {"name": "dense", "units": 4}}}, call=inference),
        case("SpectralNormalization", IMAGE, {"power_iterations": 3, "layer": {
            "Conv2D": {"name": "conv", "filters": 4, "kernel_size": 3, "activation": "tanh"}}}, call=training),
        case("SpectralNormalization", [2, 4, 3], {"power_iterations": 2, "layer": {"EinsumDense": {
            "name": "einsum", "equation": "abc,cd->abd", "output_shape": [None, 5]}}}, call=training),
    ] + [case(name, [2, 3, 4], {"rate": 0.4}, call=inference)
         for name in ("Dropout", "SpatialDropout1D", "GaussianDropout", "AlphaDropout")] + [
        case("GaussianNoise", [2, 3, 4], {"stddev": 0.4}, call=inference),
        case("SpatialDropout2D", IMAGE, {"rate": 0.4}, call=inference),
        case("SpatialDropout3D", VOLUME, {"rate": 0.4}, call=inference),
    ]


def colours(training):
    """Random layers over colours, where their factors leave nothing to chance."""
    unit = {"value_range": [0.0, 1.0]}
    result = [case(name, IMAGE, {"factor": [factor, factor], **unit}, call=training)
              for name in ("RandomSaturation", "RandomColorDegeneration", "RandomSharpness")
              for factor in (0.0, 0.3, 0.5, 0.9)]
    return result + [
        case("RandomHue", IMAGE, {"factor": [1.0, 1.0], **unit}, call=training),  # both sides meet
        case("RandomHue", IMAGE, {"factor": [0.0, 0.0], "value_range": [-2.0, 2.0]}, call=training,
             computed_in="float32"),
        case("RandomColorJitter", IMAGE, {
            "brightness_factor": [0.1, 0.1], "contrast_factor": [-0.4, 0.4], "saturation_factor": [0.3, 0.3],
            "hue_factor": [1.0, 1.0], **unit}, call=training),
        case("RandomGrayscale", IMAGE, {"factor": 1.0}, call=training),
        case("RandomGrayscale", IMAGE, {"factor": 0.0}, call=training),
        case("RandomInvert", IMAGE, {"factor": [1.0, 1.0], **unit}, call=training),
        case("RandomPosterization", IMAGE, {"factor": [2, 2], "value_range": [-2.0, 2.0]}, call=training),
        case("RandomPosterization", IMAGE, {"factor": [8, 8], "value_range": [-2.0, 2.0]}, call=training),
        case("Solarization", IMAGE, {"value_range": [-2.0, 2.0]}, call=training),
        case("AutoContrast", IMAGE, {"value_range": [-2.0, 2.0]}, call=training),
        case("AutoContrast", IMAGE, {}, call={"training": False}),
        case("Equalization", IMAGE, {"value_range": [-2.0, 2.0]}, call=training, computed_in="float32"),
        case("Equalization", IMAGE, {"value_range": [-4.0, 4.0], "bins": 7}, call=training, computed_in="float32"),
        case("Equalization", IMAGE, {}, call={"training": False}),
        case("RandAugment", IMAGE, {"num_ops": 0, "value_range": [-2.0, 2.0]}, call=training),
        case("RandAugment", IMAGE, {}, call={"training": False}),
        *[case("ContrastLimitedAdaptiveHistogramEqualization", IMAGE, {"value_range": [-2.0, 2.0], **config},
               computed_in="float32")
          for config in ({}, {"tile_grid_size": [2, 2]}, {"tile_grid_size": [3, 2], "clip_limit": 20.0},
                         {"tile_grid_size": [1, 4], "clip_limit": 0.0})],
        case("AugMix", IMAGE, {"chain_depth": 0, "value_range": [-2.0, 2.0]}, call=training),
        case("AugMix", IMAGE, {"num_chains": 1, "alpha": 0.2}, call={"training": False}),
        case("RandomElasticTransform", IMAGE, {"scale": 0.0}, call=training),
        case("RandomElasticTransform", IMAGE, {"factor": 0.0}, call=training),
        case("RandomElasticTransform", IMAGE, {}, call={"training": False}),
        case("RandomGaussianBlur", IMAGE, {"factor": [1.0, 1.0], "sigma": [0.7, 0.7], "value_range": [-2.0, 2.0]},
             call=training),
        case("RandomGaussianBlur", IMAGE, {
            "factor": [1.0, 1.0], "kernel_size": [5, 3], "sigma": [0.4, 0.4], "value_range": [-2.0, 2.0]}, call=training),
        case("RandomErasing", IMAGE, {
            "factor": [1.0, 1.0], "scale": [1.0, 1.0], "fill_value": 0.25, **unit}, call=training),
        case("RandomShear", IMAGE, {"x_factor": [0.0, 0.0], "y_factor": [0.0, 0.0]}, call=training),
        case("RandomPerspective", IMAGE, {"scale": 0.0, "factor": [1.0, 1.0]}, call=training, computed_in="float32"),
        case("RandomPerspective", IMAGE, {"factor": 0.0}, call=training),
        case("RandomPerspective", IMAGE, {}, call={"training": False}),
    ]


def augmentation():
    """Intervals of one number leave nothing to chance. Keras' matrices of zooms and shifts are float32."""
    training = {"training": True}
    single = {"call": training, "computed_in": "float32"}
    result = []
    for fill in ("reflect", "wrap", "constant", "nearest"):
        for interpolation in ("bilinear", "nearest"):
            config = {"fill_mode": fill, "interpolation": interpolation, "fill_value": 0.75}
            result += [
                case("RandomRotation", IMAGE, {"factor": [0.11, 0.11], **config}, call=training),
                case("RandomTranslation", IMAGE, {"height_factor": [0.43, 0.43], "width_factor": [-0.37, -0.37], **config},
                     **single),
                case("RandomZoom", IMAGE, {"height_factor": [0.43, 0.43], "width_factor": [-0.37, -0.37], **config},
                     **single),
            ]
    result += [
        case("RandomTranslation", IMAGE, {"height_factor": [1.0, 1.0], "width_factor": [0.7, 0.7]}, **single),
        case("RandomZoom", IMAGE, {"height_factor": [0.9, 0.9]}, **single),
        case("RandomContrast", IMAGE, {"factor": [-0.5, 0.5], "value_range": [-1.5, 1.0]}, call=training),
        case("RandomBrightness", IMAGE, {"factor": [0.25, 0.25], "value_range": [-2.0, 2.0]}, call=training),
        *colours(training),
    ]
    for name, config in (("RandomFlip", {}), ("RandomRotation", {"factor": 0.2}), ("RandomContrast", {"factor": 0.2}),
                         ("RandomBrightness", {"factor": 0.2}), ("RandomZoom", {"height_factor": 0.2}),
                         ("RandomTranslation", {"height_factor": 0.2, "width_factor": 0.1})):
        result.append(case(name, IMAGE, config, call={"training": False}))
    return result


FILES = {
    "layers": lambda: core() + activations(),
    "layers_convolution": lambda: convolutions() + transposed(),
    "layers_pooling": pooling,
    "layers_spatial": spatial,
    "layers_normalization": normalization,
    "layers_augmentation": augmentation,
    "layers_recurrent": recurrent,
    "layers_wrappers": wrappers,
    "layers_operations": operations,
}
