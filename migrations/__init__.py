"""Alembic migrations: ``NNNN_verb_noun``, each with its way down."""
