#!/usr/bin/env python3
"""Writes masks of every kind of PNG, and their numbers as numpy and Pillow see them.

  python3 masks.py [FOLDER]     default: ../golden/masks

FOLDER/images/NAME.png are grey images, FOLDER/masks/NAME_mask.png (or .jpg) their masks, FOLDER/goldens.npz the
numbers: `NAME` of each, (12, 16).
"""
import pathlib
import shutil
import struct
import sys
import zlib

import numpy as np
from PIL import Image

SHAPE = (12, 16)


def numbers(seed, count):
    """Blocks of class numbers below `count`."""
    rng = np.random.default_rng(seed)
    return np.kron(rng.integers(0, count, (4, 4)), np.ones((3, 4), np.int64))


def save_bits(path, values, depth):
    """Grey of `depth` bits a pixel, which Pillow does not write."""
    rows = np.unpackbits(values.astype(np.uint8)[..., None], axis=-1)[..., 8 - depth:].reshape(SHAPE[0], -1)
    body = b"".join(b"\0" + np.packbits(row).tobytes() for row in rows)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", SHAPE[1], SHAPE[0], depth, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) +
                     chunk(b"IEND", b""))


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "golden" / "masks"
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    found = {}

    def put(name, values):
        Image.fromarray((np.arange(192).reshape(SHAPE)).astype(np.uint8)).save(folder / "images" / f"{name}.png")
        found[name] = values.astype(np.int32)
        return folder / "masks" / f"{name}_mask.png"

    grey = numbers(1, 5)
    Image.fromarray(grey.astype(np.uint8)).save(put("grey", grey))
    palette = numbers(2, 4)
    image = Image.fromarray(palette.astype(np.uint8), mode="P")
    image.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0])
    image.save(put("palette", palette))
    image.save(put("palette_clear", palette), transparency=0)
    for depth in (1, 2, 4):
        values = numbers(depth + 2, 2**depth)
        save_bits(put(f"bits{depth}", values), values, depth)
    deep = numbers(7, 3) * 300
    Image.fromarray(deep.astype(np.uint16)).save(put("deep", deep))
    alpha = numbers(8, 3)
    Image.fromarray(np.stack([alpha, alpha * 0 + 9], -1).astype(np.uint8), "LA").save(put("alpha", alpha))
    same = numbers(9, 3)
    Image.fromarray(np.stack([same] * 3, -1).astype(np.uint8)).save(put("same", same))
    Image.fromarray(np.stack([same] * 3 + [same * 0 + 200], -1).astype(np.uint8)).save(put("same_alpha", same))
    np.savez(folder / "goldens.npz", **found)
    for name in found:
        with Image.open(folder / "masks" / f"{name}_mask.png") as image:
            if name not in ("bits1", "bits2", "bits4", "alpha", "same", "same_alpha"):  # others change in Pillow
                assert (np.array(image) == found[name]).all(), name


if __name__ == "__main__":
    main()
