"""Prompts and replies as files, for a person or an agent."""
