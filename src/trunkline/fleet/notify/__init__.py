"""Telling people without being asked: of questions that are open, and of alerts."""
