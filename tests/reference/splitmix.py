"""Numbers that Python and C++ (tests/support/splitmix.h) make alike, bit for bit.

Number i of stream `seed` is SplitMix64's output for the state seed + (i + 1) * GAMMA (Steele, Lea,
Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). All conversions to floating
point are exact, so no rounding can differ.
"""
import numpy as np

GAMMA = 0x9E3779B97F4A7C15


def bits(seed, count, start=0):
    """uint64 numbers start .. start + count - 1 of the stream."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def signed(seed, shape, scale=1.0):
    """float32 in [-scale, scale): (top 24 bits - 2^23) * 2^-23 * scale; scale a power of two."""
    count = int(np.prod(shape, dtype=np.int64))
    top = (bits(seed, count) >> np.uint64(40)).astype(np.int64) - 2**23
    return (top.astype(np.float32) * np.float32(2.0**-23) * np.float32(scale)).reshape(shape)


def unit(seed, shape):
    """float32 in [0, 1): top 24 bits * 2^-24."""
    count = int(np.prod(shape, dtype=np.int64))
    top = (bits(seed, count) >> np.uint64(40)).astype(np.float32)
    return (top * np.float32(2.0**-24)).reshape(shape)


def below(seed, limit, shape):
    """int64 in [0, limit): (top 32 bits * limit) >> 32."""
    count = int(np.prod(shape, dtype=np.int64))
    top = bits(seed, count) >> np.uint64(32)
    return ((top * np.uint64(limit)) >> np.uint64(32)).astype(np.int64).reshape(shape)
