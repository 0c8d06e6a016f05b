#!/usr/bin/env python3
"""MB/s of `meshtrain data tokenize` beside PyPI's `tokenizers` on one thread, which must give the same ids.

usage: tokenizer.py MESHTRAIN TOKENIZER_DIR TEXT [repeats]
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
from tokenizers import Tokenizer


def main():
    program, folder, path = sys.argv[1:4]
    repeats = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    text = pathlib.Path(path).read_text(encoding="utf-8")
    megabytes = len(text.encode()) / 1e6
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as out:
        for _ in range(repeats):
            begin = time.perf_counter()
            subprocess.run([program, "data", "tokenize", path, "--tokenizer", folder, "-o", out + "/ids.bin",
                            "--header", "none", "--force"], check=True, stdout=subprocess.DEVNULL)
            ours.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            theirs.append(time.perf_counter() - begin)
        dtype = np.uint16 if tokenizer.get_vocab_size() <= 65536 else np.uint32
        same = np.array_equal(np.fromfile(out + "/ids.bin", dtype), np.array(ids, dtype))
    print(f"meshtrain {megabytes / min(ours):.2f} MB/s (with its start), tokenizers "
          f"{megabytes / min(theirs):.2f} MB/s, same ids: {same}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
