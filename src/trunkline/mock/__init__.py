"""Agents that answer by a script and misbehave on purpose."""
