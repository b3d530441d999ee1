"""Durable workflows: definitions, the engine that walks them, what their nodes have done, and surfaces."""
