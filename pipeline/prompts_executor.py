"""The executor's prompt: when to look something up, and when to stop. It holds no knowledge map, on purpose.

The executor knows what was done, not what there is; which domains exist is the planner's business. Every sentence
here is a promise of the tool, and one test binds each of them to what the code does.
"""

from __future__ import annotations

from typing import Literal

VERSION = 1
NO_BLAME = "不查全不会被追责，重复检索才会被惩罚"
WHEN_TO_CALL = "需要外部信息时调用工具，但须遵守下方的检索约束"

_ZH = f"""\
{WHEN_TO_CALL}。

# 检索约束（工具 lookup_knowledge）

1. 判断重复：基于 retrieved_domains_this_session 判断语义重叠。它在每次结果中给出本次会话已检索过的域；\
问题与已得到的内容语义重叠，就是重复检索。
2. 重复了怎么办：禁止换关键词重查；先指缺少的维度，再定向补充：用 missing_aspect 写明该维度，只补充一次。\
确需重看已取得的文档，用 refetch 写明其 key，不要重新检索。
3. 合法出口：{NO_BLAME}。基于已有信息作答，并说明缺少什么，就是完成任务。
4. 利用质量信号（relevance_level 与 completeness_hint）：
   - PRECISE：停止检索，直接使用结果。
   - HIGHLY_RELEVANT：综合已有结果推理；该域已检索过时，禁止再检索。
   - REFERENCE：可作参考；如需更精准的信息，指出缺少的维度后定向补充。
   - DEDUPED：内容此前已经给过，使用之前的结果。
   - found=false：知识库没有相关内容，这是结论，不是故障；提示停止时停止检索。
"""

_EN = """\
Call a tool when you need outside information, but keep to the retrieval rules below.

# Retrieval rules (tool lookup_knowledge)

1. Recognise a repeat: before a call, read retrieved_domains_this_session in the last result (the domains this session \
has already searched). A question that means the same as one you asked, or that falls into what those domains already \
gave you, is a repeat.
2. What to do about it: do not search again in other words. Name the aspect that is missing first, then make one \
targeted call with it in missing_aspect. To see a document again that you already received, name its key in refetch; \
do not search for it.
3. The legitimate way out: not finding everything is not held against you, searching again is. Answering from what you \
have, and saying what is missing, completes the task.
4. Use the quality signals (relevance_level and completeness_hint):
   - PRECISE: stop searching and use the result.
   - HIGHLY_RELEVANT: reason from what you have; where the domain was searched before, do not search again.
   - REFERENCE: use it as a reference; if you need something more precise, name the missing aspect and ask for that.
   - DEDUPED: the content was given to you before; use the earlier result.
   - found=false: the knowledge base holds nothing on this; that is a finding, not a failure. Stop when the hint says so.
"""


def executor_prompt(language: Literal["zh", "en"] = "zh") -> str:
    """The text to put into an executor's system prompt, in Chinese or English."""
    return _ZH if language == "zh" else _EN
