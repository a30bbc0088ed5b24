"""The only reader of the environment. Every setting has the prefix ``WELLHEAD_``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Where the parts are, which model is used, and every limit that an error message names."""

    model_config = SettingsConfigDict(env_prefix="WELLHEAD_", extra="ignore", frozen=True)

    data_dir: Path = Path(".wellhead")
    database_url: str = ""
    broker_url: str = ""
    memory_url: str = ""
    milvus_uri: str = ""
    milvus_token: SecretStr = SecretStr("")
    milvus_prefix: str = Field(default="wellhead", pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$")
    api_url: str = ""
    api_host: str = "127.0.0.1"
    api_port: int = 8420
    flower_port: int = 8421
    flower_basic_auth: SecretStr = SecretStr("")

    embedder: str = "onnx"
    embed_model: str = "multilingual-e5-small"
    embed_dimension: int | None = Field(default=None, description="Truncate and renormalise to this many dimensions.")
    embed_threads: int = Field(default=0, description="0: as many as the machine has.")
    passage_tokens: int = Field(default=400, ge=32, le=8192)
    batch_tokens: int = Field(default=1024, description="Token slots of one forward pass; small is fast on CPUs.")
    query_encoder_url: str = ""

    claim_seconds: float = 120.0
    claim_longest_seconds: float = 900.0
    drain_seconds: float = 30.0
    max_errors: int = 5
    max_lapses: int = 2
    retry_base_seconds: float = 5.0
    flip_grace_seconds: float = 10.0
    soak_seconds: float = 3600.0
    sweep_seconds: float = 5.0
    heal_seconds: float = 20.0
    drain_hard_seconds: float = Field(default=180.0, ge=35, description="A drain that hangs this long is killed.")
    pending_cap: int = Field(default=20_000, description="Pending passages of one tenant before back-pressure.")

    max_body_bytes: int = 20 * 1024 * 1024
    max_batch_bytes: int = 64 * 1024 * 1024
    max_key_bytes: int = 512
    max_domain_chars: int = 64
    max_description_chars: int = 256
    max_keyword_chars: int = 128
    max_keywords: int = 200
    max_title_chars: int = 1000
    max_events: int = 100_000
    max_query_chars: int = 4000

    max_l2_distance: float = 2.0
    highly_relevant_threshold: float = 0.75
    reference_threshold: float = 0.5
    content_tokens: int = Field(default=2000, description="Bodies up to this are returned whole.")

    llm_base_url: str = ""
    llm_model: str = ""
    llm_api_key: SecretStr = SecretStr("")
    llm_timeout_seconds: float = 60.0
    llm_calls_per_hour: int = 600
    llm_tokens_per_day: int = 2_000_000

    database_pool: int = 10
