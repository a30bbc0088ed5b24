"""Fixtures of the encoders, unpacked once and kept between test sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.bundled_model import ensure
from pipeline.adapters.onnx import OnnxEmbedder

MODELS = Path(__file__).resolve().parents[2] / ".test-services" / "models"


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Where unpacked models are kept; ``ensure`` checks them by hash before every use."""
    return MODELS


@pytest.fixture(scope="session")
def model_dir(models_dir: Path) -> Path:
    """The bundled encoder, int8."""
    return ensure(models_dir)


@pytest.fixture(scope="session")
def model_dir_fp32(models_dir: Path) -> Path:
    """The bundled encoder, fp32: what int8 is measured against."""
    return ensure(models_dir, precision="fp32")


@pytest.fixture(scope="session")
def onnx_embedder(model_dir: Path) -> Iterator[OnnxEmbedder]:
    """One loaded encoder for the whole session: its vocabulary alone takes a second to read."""
    yield OnnxEmbedder(model_dir)
