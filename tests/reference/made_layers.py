"""Keras' layers from their classes and arguments as layer_cases.py has them."""
import keras
from keras.src.applications import convnext, inception_resnet_v2

# Layers of networks that Keras builds, which keras.layers has not.
OTHERS = {"LayerScale": convnext.LayerScale, "StochasticDepth": convnext.StochasticDepth,
          "CustomScaleLayer": inception_resnet_v2.CustomScaleLayer}


def made(value):
    """A layer of its class and arguments, {"Dense": {...}}; other values as they are."""
    if isinstance(value, dict) and len(value) == 1 and (next(iter(value)) in OTHERS
                                                        or hasattr(keras.layers, next(iter(value)))):
        (class_name, config), = value.items()
        return (OTHERS.get(class_name) or getattr(keras.layers, class_name))(**{key: made(each) for key, each in config.items()})
    if isinstance(value, list):
        return [made(each) for each in value]
    return value
