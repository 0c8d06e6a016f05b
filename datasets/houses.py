#!/usr/bin/env python3
"""Writes houses.npz beside this file: 3,000 made-up flats for configs/tabular.yaml.

  numbers   (3000, 5) float32  area in m2, rooms, age in years, kilometres to the centre, floor
  district  (3000,) int32      one of 12
  price     (3000,) float32    in 100,000
  sold      (3000,) float32    1 when sold within a month, more likely in the centre

Every number is a formula of SplitMix64 (as tests/reference/splitmix.py has it), so the file is the
same wherever it is made; NumPy only packs it.

  python3 datasets/houses.py
"""
import pathlib

import numpy as np

SAMPLES = 3000
DISTRICTS = 12


def unit(seed, count=SAMPLES):
    """float64 in [0, 1): the top 24 bits of SplitMix64."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-24


def bell(seed, count=SAMPLES):
    """Mean 0, deviation 1: the sum of twelve uniform numbers."""
    return sum(unit(seed + i, count) for i in range(12)) - 6.0


def main():
    district = (unit(1) * DISTRICTS).astype(np.int32)
    standing = bell(100, DISTRICTS)[district]  # what a district adds to the price
    area = np.round(25 + 130 * unit(2) ** 1.5)
    rooms = np.clip(np.round(area / 27 + 0.6 * bell(200)), 1, 7)
    age = np.round(110 * unit(3) ** 2)
    distance = np.round(0.3 + 14 * unit(4), 1)
    floor = np.floor(9 * unit(5) ** 1.3)

    worth = area * (0.034 - 0.0011 * distance + 0.0045 * standing) * (1 - 0.25 * np.sin(age / 110 * np.pi))
    worth += 0.08 * rooms + 0.03 * floor
    price = np.round(worth * (1 + 0.08 * bell(300)), 3)
    eager = 3.2 - 0.45 * distance + 1.6 * standing - 0.018 * (area - 70) + 0.4 * (floor > 0) * (age < 40)
    sold = unit(6) < 1 / (1 + np.exp(-eager))

    np.savez_compressed(
        pathlib.Path(__file__).with_name("houses.npz"),
        numbers=np.stack([area, rooms, age, distance, floor], axis=1).astype(np.float32),
        district=district, price=price.astype(np.float32), sold=sold.astype(np.float32))
    print(f"price {price.mean():.3f} +- {price.std():.3f}, sold {sold.mean():.3f}")


if __name__ == "__main__":
    main()
