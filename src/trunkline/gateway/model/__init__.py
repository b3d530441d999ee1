"""Agents that are a model with tools: the extra `model`."""
