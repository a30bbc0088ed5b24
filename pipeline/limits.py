"""How large an upload may be. Every limit is a setting or a default here, and is named in the error it causes."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bytes are UTF-8, ``chars`` are code points."""

    max_body_bytes: int = 20 * 1024 * 1024
    max_batch_bytes: int = 64 * 1024 * 1024
    max_key_bytes: int = 512
    max_domain_chars: int = 64
    max_title_chars: int = 1000
    max_summary_chars: int = 4000
    max_when_to_retrieve_chars: int = 1000
    max_source_chars: int = 2048
    max_keyword_chars: int = 128
    max_keywords: int = 200
    max_cover_chars: int = 256
    max_covers: int = 100
    max_events: int = 100_000
    max_blocks: int = 100
    max_id_chars: int = 256
    max_ref_chars: int = 2048
    max_metadata_bytes: int = 64 * 1024
    max_metadata_depth: int = 8
    max_metadata_keys: int = 256
    max_metadata_key_chars: int = 128

    @classmethod
    def from_settings(cls, settings: object) -> Limits:
        """Takes every limit that ``settings`` has under the same name."""
        names = [field.name for field in fields(cls) if hasattr(settings, field.name)]
        return cls(**{name: getattr(settings, name) for name in names})
