"""What the unit tests share."""

from __future__ import annotations

import pytest

from pipeline.lookup import LookupLimits
from tests.fakes_lookup import World

FILLER = [
    "kafka consumer lag",
    "canary release steps",
    "certificate renewal",
    "disk full on nodes",
    "payout delay",
    "chargebacks",
]


@pytest.fixture
def world() -> World:
    made = World(limits=LookupLimits(identity=True))
    for i, topic in enumerate(FILLER):
        made.put(f"filler/{i}", f"About {topic}. " * 6, title=topic.title(), domain="other")
    made.put(
        "pay/refunds",
        "Refund failed with code PAY-4031: the original charge is older than ninety days.\n\nUse a manual payout.",
        title="Refunds that fail",
        domain="payments",
        keywords=["PAY-4031"],
    )
    made.put(
        "infra/pool",
        "# 连接池\n\n数据库连接池怎么配置：最大连接数设为核数的两倍。\n\n## 耗尽\n\n连接池耗尽时先看慢查询。",
        title="数据库连接池",
        domain="infrastructure",
    )
    return made
