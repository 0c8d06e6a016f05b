#!/usr/bin/env python3
"""Whole tensors of a checkpoint as JSON, by no more than json and struct: safetensors' description and
the offsets in DCP_SHARDING_INFO.

  checkpoint.py tests/golden/checkpoint/000012 > tests/golden/checkpoint/tensors.json
"""
import itertools
import json
import pathlib
import struct
import sys

FORMATS = {"F32": "f", "F64": "d", "I64": "q", "I32": "i", "U8": "B"}


def shards(path):
    """(name, dtype, offsets, shape, values) of each tensor of a file."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    places = json.loads(header.pop("__metadata__")["DCP_SHARDING_INFO"])
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        kind = FORMATS[entry["dtype"]]
        values = struct.unpack(f"<{(end - begin) // struct.calcsize(kind)}{kind}", data[begin:end])
        yield name, entry["dtype"], places[name]["saved_offsets"], entry["shape"], values


def main(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*/*.safetensors")):
        for name, dtype, offsets, shape, values in shards(path):
            tensor = tensors.setdefault(name, {"dtype": dtype, "elements": {}})
            places = itertools.product(*(range(o, o + s) for o, s in zip(offsets, shape)))
            tensor["elements"].update(zip(places, values))
    out = {}
    for name, tensor in sorted(tensors.items()):
        elements = tensor["elements"]
        shape = [1 + max(place[d] for place in elements) for d in range(len(next(iter(elements))))]
        values = [elements[place] for place in itertools.product(*map(range, shape))]
        out[name] = {"dtype": tensor["dtype"], "shape": shape, "values": values}
    print("{\n" + ",\n".join(f'"{name}": {json.dumps(tensor)}' for name, tensor in out.items()) + "\n}")


if __name__ == "__main__":
    main(sys.argv[1])
