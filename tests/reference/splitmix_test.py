#!/usr/bin/env python3
"""Checks splitmix.py against plain integer arithmetic and SplitMix64's published first outputs."""
import sys

try:
    import splitmix
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

MASK = 2**64 - 1


def plain_bits(seed, index):
    z = (seed + (index + 1) * splitmix.GAMMA) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


assert [int(b) for b in splitmix.bits(0, 3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
for seed in (1, 202, 2**63 + 5):
    assert [int(b) for b in splitmix.bits(seed, 100)] == [plain_bits(seed, i) for i in range(100)]
    assert [int(b) for b in splitmix.bits(seed, 9, start=91)] == [plain_bits(seed, i) for i in range(91, 100)]
    top = [plain_bits(seed, i) >> 40 for i in range(1000)]
    assert splitmix.unit(seed, (1000,)).tolist() == [t / 2**24 for t in top]
    assert splitmix.signed(seed, (1000,), 0.125).tolist() == [(t - 2**23) / 2**26 for t in top]
    below = [plain_bits(seed, i) >> 32 for i in range(1000)]
    assert splitmix.below(seed, 10, (1000,)).tolist() == [b * 10 >> 32 for b in below]
print("splitmix: ok")
