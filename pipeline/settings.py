"""The only reader of the environment. Every setting has the prefix ``WELLHEAD_``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

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
    api_key: SecretStr = Field(default=SecretStr(""), description="What the command line sends to the API.")
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
    quiet_seconds: float = Field(default=960.0, ge=0, description="Between retiring and dropping a collection.")
    min_self_retrieval: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="Of the titles that find their document now, as many must do so after a swap.",
    )
    sweep_seconds: float = 5.0
    heal_seconds: float = 20.0
    reconcile_seconds: float = 3600.0
    drain_hard_seconds: float = Field(
        default=180.0,
        ge=5,
        description="A task that finishes nothing for this long ends its process; a drain is killed.",
    )
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
    identity_calibration: bool = Field(default=False, description="The original's table instead of a fitted map.")
    content_tokens: int = Field(default=2000, description="Bodies up to this are returned whole.")

    domain_limit: Literal["off", "repeat", "hard"] = Field(
        default="repeat", description="What stops a further question in a domain that has answered one of the session."
    )
    memory_timeout_seconds: float = Field(default=0.05, gt=0, description="Beyond it a lookup goes on without memory.")
    recall_lease_seconds: float = Field(default=600.0, gt=0, description="How long a recalled episode is held.")
    session_ttl_seconds: float = Field(default=86_400.0, ge=1, description="From the last lookup of the session.")

    llm_base_url: str = ""
    llm_model: str = ""
    llm_api_key: SecretStr = SecretStr("")
    llm_timeout_seconds: float = 60.0
    llm_calls_per_hour: int = 600
    llm_tokens_per_day: int = 2_000_000
    llm_window_tokens: int = Field(default=8192, ge=2048, description="The model's context window.")
    llm_prompt_tokens: int = Field(default=6000, ge=256, description="The most tokens of documents in one prompt.")
    llm_reply_tokens: int = Field(default=800, ge=128)
    llm_refresh_per_hour: int = Field(default=120, ge=0, description="Pace of rewriting stale summaries.")
    llm_domain_quiet_seconds: float = Field(default=10.0, description="A domain this long unchanged is summarised.")
    llm_domain_wait_seconds: float = Field(default=300.0, description="A change waits at most this long.")
    llm_domain_calls: int = Field(default=3, ge=1, description="LLM calls of one domain within the longest wait.")
    llm_price_in: float = Field(default=0.0, description="Price of a million prompt tokens.")
    llm_price_out: float = Field(default=0.0, description="Price of a million reply tokens.")
    map_tokens: int = Field(default=8000, ge=500, description="The most tokens of one tenant's knowledge map.")

    database_pool: int = 10
