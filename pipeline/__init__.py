"""Wellhead's product code: how a document becomes searchable and how a question is answered.

An upload is received (``receive``), cut into passages (``prepare``), embedded (``embed``) and made
searchable in one flip; the old version is retired (``retire``). ``sweep`` finds whatever was
forgotten, ``generations`` re-embeds the corpus when the model or the text rule changes,
``summarise`` writes what documents cover, ``lookup`` and ``recall`` answer questions.

PostgreSQL is the truth; Milvus and Redis can be lost at any moment and are rebuilt.
This package knows no Celery and no FastAPI. The pure files and the stages import no client library
at all: they talk to ``ports``, ``adapters`` implement them, ``wiring`` puts the two together.
"""
