#!/bin/sh
# Puts the programs of others that read what meshtrain writes into build/peers, a virtual environment
# of its own: TensorBoard, PyTorch (its distributed checkpoint reader), safetensors and NumPy, from PyPI.
# The tests test_board and test_shards use it from the next scripts/build.sh or cmake on, and are skipped
# without it; test_tensor and test_splitmix are content with Debian's NumPy. Another Python that has them:
# cmake -DMESHTRAIN_PEERS_PYTHON=.../bin/python.
#   scripts/python_peers.sh [PYTHON]     the Python to make it with, default python3
# PyTorch's own package index has one without CUDA, 0.2 instead of 3 GB; it is taken where it answers.
set -eu
cd "$(dirname "$0")/.."

peers=build/peers
if ! "${1:-python3}" -m venv "$peers"; then
  echo "python_peers: no virtual environment: on Debian, apt-get install python3-venv" >&2
  exit 1
fi
"$peers/bin/python" -m pip install --quiet --retries 1 \
  --extra-index-url https://download.pytorch.org/whl/cpu \
  numpy safetensors tensorboard "torch>=2.8"
"$peers/bin/python" -c "
import safetensors, tensorboard, torch
from torch.distributed.checkpoint import HuggingFaceStorageReader
print('tensorboard', tensorboard.__version__, 'torch', torch.__version__, 'safetensors', safetensors.__version__)"
echo "in $peers; now scripts/build.sh, then: ctest --test-dir build/release -R 'test_board|test_shards'"
