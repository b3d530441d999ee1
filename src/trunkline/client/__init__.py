"""Calls any A2A agent, whatever dialect it speaks."""
