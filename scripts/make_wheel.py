#!/usr/bin/env python3
"""Makes a Python wheel of a staged program: make_wheel.py ROOT VERSION OUTPUT

ROOT has bin/meshtrain, lib/ and share/; pip puts them into the same folders of a (virtual) environment, so that the
program starts without Python. Called by package.sh. The format is PyPA's "binary distribution format", version 1.0.
"""
import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

# What a GPU needs beside the driver, by extra. Names of NVIDIA's packages on PyPI.
EXTRAS = {
    "cuda12": ["nvidia-cuda-nvrtc-cu12>=12.4", "nvidia-cublas-cu12>=12.4", "nvidia-cudnn-cu12>=9",
               "nvidia-nccl-cu12>=2.20"],
    "cuda13": ["nvidia-cuda-nvrtc>=13,<14", "nvidia-cublas>=13,<14", "nvidia-cudnn-cu13>=9", "nvidia-nccl-cu13>=2.20"],
}


def metadata(version, readme):
    lines = ["Metadata-Version: 2.1", "Name: meshtrain", f"Version: {version}",
             "Summary: Sharded neural network training from one YAML file", "Requires-Python: >=3.8",
             "Description-Content-Type: text/markdown"]
    for extra, packages in EXTRAS.items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {package}; extra == "{extra}"' for package in packages]
    return "\n".join(lines) + "\n\n" + readme


def members(root, version, tag):
    """(name in the wheel, bytes, mode) of every file, sorted."""
    data, info = f"meshtrain-{version}.data", f"meshtrain-{version}.dist-info"
    for path in sorted(root.rglob("*")):
        if path.is_file():
            place = path.relative_to(root)
            # Scripts go where the environment has its programs; everything else keeps its place below it.
            name = f"{data}/scripts/{place.name}" if place.parts[0] == "bin" else f"{data}/data/{place}"
            yield name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644
    readme = (root / "share/doc/meshtrain/README.md").read_text()
    yield f"{info}/METADATA", metadata(version, readme).encode(), 0o644
    yield f"{info}/WHEEL", (f"Wheel-Version: 1.0\nGenerator: meshtrain\nRoot-Is-Purelib: false\nTag: {tag}\n").encode(), 0o644


def main():
    root, version, output = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    tag = "-".join(output.stem.split("-")[2:])
    date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))[:6]
    record = []
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        def add(name, content, mode):
            member = zipfile.ZipInfo(name, date)
            member.external_attr = (0o100000 | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(member, content)

        for name, content, mode in members(root, version, tag):
            add(name, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
        name = f"meshtrain-{version}.dist-info/RECORD"
        add(name, ("\n".join(record + [f"{name},,"]) + "\n").encode(), 0o644)


if __name__ == "__main__":
    sys.exit(main())
