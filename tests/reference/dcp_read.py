#!/usr/bin/env python3
"""Reads folders of a checkpoint's shards as other programs do and writes whole tensors as .npy files.

  dcp_read.py FOLDER...            checkpoints/000500/model; makes model/read with NAME.npy, "/" as "%"
  dcp_read.py --shards FOLDER...   without PyTorch: safetensors' own reader, shards put together here

The first way is PyTorch's distributed checkpoint reader (HuggingFaceStorageReader, PyTorch 2.8 or later),
which finds sizes and places by itself; the second knows from the format's description what DCP_SHARDING_INFO
means. Exit status 3 when what it needs is not installed.
"""
import json
import pathlib
import sys


def whole_shapes(folder, safe_open):
    """name -> (dtype's tensor type, shape): the global size is the largest offset + shape over all files."""
    shapes, kinds = {}, {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            info = json.loads(file.metadata()["DCP_SHARDING_INFO"])
            for name in file.keys():
                shard = file.get_slice(name)
                ends = [o + s for o, s in zip(info[name]["saved_offsets"], shard.get_shape())]
                shapes[name] = [max(a, b) for a, b in zip(shapes.get(name, ends), ends)]
                kinds[name] = shard.get_dtype()
    return shapes, kinds


def read_with_torch(folder, shapes, kinds):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader
    types = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}
    reader = HuggingFaceStorageReader(folder)
    found = reader.read_metadata().state_dict_metadata
    for name, shape in shapes.items():
        if list(found[name].size) != shape:
            raise SystemExit(f"PyTorch takes {name} to be {list(found[name].size)}, not {shape}")
    state = {name: torch.full(shape, 77).to(types[kinds[name]]) for name, shape in shapes.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder), no_dist=True)
    return {name: tensor.numpy() for name, tensor in state.items()}


def read_shards(folder, shapes, safe_open):
    import numpy
    out = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            info = json.loads(file.metadata()["DCP_SHARDING_INFO"])
            for name in file.keys():
                shard = file.get_tensor(name)
                whole = out.setdefault(name, numpy.full(shapes[name], 77, shard.dtype))
                begin = info[name]["saved_offsets"]
                whole[tuple(slice(b, b + s) for b, s in zip(begin, shard.shape))] = shard
    return out


def main():
    with_torch = "--shards" not in sys.argv
    try:
        import numpy
        from safetensors import safe_open
        if with_torch:
            from torch.distributed.checkpoint import HuggingFaceStorageReader  # noqa: F401
    except ImportError as error:
        print(error)
        return 3
    for folder in sys.argv[1 if with_torch else 2:]:
        shapes, kinds = whole_shapes(folder, safe_open)
        tensors = read_with_torch(folder, shapes, kinds) if with_torch else read_shards(folder, shapes, safe_open)
        out = pathlib.Path(folder) / "read"
        out.mkdir()
        for name, tensor in tensors.items():
            numpy.save(out / (name.replace("/", "%") + ".npy"), tensor)
    return 0


if __name__ == "__main__":
    sys.exit(main())
