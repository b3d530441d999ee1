"""Ceremonies: work that a schedule opens."""
