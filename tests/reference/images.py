#!/usr/bin/env python3
"""Writes small images of every kind and what Keras' image_dataset_from_directory makes of them.

  KERAS_BACKEND=jax python3 images.py [FOLDER]     default: ../golden/images

FOLDER/folder/CLASS/... are the images, FOLDER/files.txt their order, FOLDER/goldens.npz the arrays: `NAME_x` and
`NAME_y` of each case of CASES.
"""
import pathlib
import shutil
import struct
import sys
import zlib

import keras
import numpy as np
from PIL import Image

import splitmix

CASES = {
    "rgb": dict(color_mode="rgb", image_size=(8, 8)),
    "grey": dict(color_mode="grayscale", image_size=(8, 8)),
    "rgba": dict(color_mode="rgba", image_size=(8, 8)),
    "larger": dict(color_mode="rgb", image_size=(23, 31)),
    "nearest": dict(color_mode="rgb", image_size=(10, 7), interpolation="nearest"),
    "bicubic": dict(color_mode="rgb", image_size=(10, 21), interpolation="bicubic"),
    "lanczos3": dict(color_mode="rgb", image_size=(10, 21), interpolation="lanczos3"),
    "lanczos5": dict(color_mode="rgb", image_size=(21, 9), interpolation="lanczos5"),
    "cropped": dict(color_mode="rgb", image_size=(6, 15), crop_to_aspect_ratio=True),
    "padded": dict(color_mode="rgb", image_size=(9, 14), pad_to_aspect_ratio=True),
    "one_hot": dict(color_mode="grayscale", image_size=(4, 4), label_mode="categorical"),
}


def picture(seed, height, width, channels):
    """Smooth, so that JPEG keeps it, with a few sharp places."""
    y, x = np.mgrid[0:height, 0:width]
    phase = splitmix.unit(seed, (channels, 3)).astype(np.float64)
    planes = [
        127 + 100 * np.sin(6 * p[0] + x / width * (2 + 4 * p[1])) * np.cos(y / height * (1 + 5 * p[2]))
        for p in phase
    ]
    out = np.stack(planes, -1).round().astype(np.uint8)
    out[height // 3, width // 2] = 255
    return out if channels > 1 else out[..., 0]


def save_png(path, rows, height, width, depth, interlaced):
    """RGB as Pillow does not write it: Adam7, or 16 bits. `rows` are bytes."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, interlaced)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def save_interlaced(path, pixels):
    rows = [row.tobytes() for y, x, dy, dx in ADAM7 for row in pixels[y::dy, x::dx] if row.size]
    save_png(path, rows, *pixels.shape[:2], depth=8, interlaced=1)


def save_16_bit(path, pixels):
    """The high bytes are `pixels`."""
    rows = [row.tobytes() for row in pixels.astype(">u2") * 256 + 129]
    save_png(path, rows, *pixels.shape[:2], depth=16, interlaced=0)


def write_images(folder):
    pngs, jpegs = folder / "a png", folder / "b jpeg"
    nested = jpegs / "nested"
    for place in (pngs, nested):
        place.mkdir(parents=True)
    rgb = Image.fromarray(picture(1, 12, 16, 3))
    rgb.save(pngs / "rgb.png")
    Image.fromarray(picture(2, 16, 10, 4), "RGBA").save(pngs / "rgba.png")
    Image.fromarray(picture(3, 9, 9, 1)).save(pngs / "grey.png")
    grey_alpha = Image.merge("LA", [Image.fromarray(picture(seed, 7, 13, 1)) for seed in (4, 5)])
    grey_alpha.save(pngs / "grey_alpha.PNG")
    palette = Image.fromarray(picture(6, 14, 11, 3)).quantize(13)
    palette.save(pngs / "palette.png")
    palette.save(pngs / "palette_transparent.png", transparency=2)
    Image.fromarray(picture(7, 10, 19, 1) > 127).save(pngs / "bits.png")
    save_interlaced(pngs / "interlaced.png", picture(8, 11, 15, 3))
    save_16_bit(pngs / "rgb16.png", picture(9, 8, 12, 3))
    Image.fromarray(picture(10, 20, 24, 3)).save(jpegs / "rgb.jpg", quality=90, subsampling=0)
    Image.fromarray(picture(11, 24, 18, 3)).save(jpegs / "half_colours.jpeg", quality=85, subsampling=2)
    Image.fromarray(picture(12, 16, 16, 1)).save(jpegs / "grey.JPG", quality=90)
    Image.fromarray(picture(13, 17, 25, 3)).save(nested / "progressive.jpg", quality=80, progressive=True)
    Image.fromarray(picture(14, 16, 18, 4), "CMYK").save(jpegs / "cmyk.jpg", quality=95)
    turned = Image.Exif()
    turned[0x0112] = 6  # to be shown turned by a quarter; nobody here does
    Image.fromarray(picture(15, 12, 20, 3)).save(jpegs / "turned.jpg", quality=90, exif=turned)
    rgb.save(jpegs / "really_a.jpg", format="png")
    Image.fromarray(picture(16, 1, 30, 3)).save(nested / "one_row.png")


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "golden/images"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else folder
    shutil.rmtree(folder / "folder", ignore_errors=True)
    write_images(folder / "folder")
    arrays = {}
    for name, options in CASES.items():
        dataset = keras.utils.image_dataset_from_directory(
            folder / "folder", batch_size=None, shuffle=False, format="grain", verbose=False, **options)
        samples = list(dataset)
        arrays[f"{name}_x"] = np.stack([np.asarray(x, np.float32) for x, _ in samples])
        arrays[f"{name}_y"] = np.stack([np.asarray(y) for _, y in samples])
        paths = [str(pathlib.Path(path).relative_to(folder / "folder")) for path in dataset.file_paths]
        print(name, arrays[f"{name}_x"].shape, arrays[f"{name}_y"].shape, arrays[f"{name}_y"].dtype)
    (folder / "files.txt").write_text("\n".join(paths) + "\n")
    np.savez_compressed(folder / "goldens.npz", **arrays)


if __name__ == "__main__":
    main()
