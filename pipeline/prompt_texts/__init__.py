"""Prompt texts, one file a prompt and language; a changed text needs a new version in pipeline/prompts.py."""
