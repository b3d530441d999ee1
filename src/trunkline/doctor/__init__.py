"""Probes any A2A agent and says what is wrong with it."""
