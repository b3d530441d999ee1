"""The embedded store: one SQLite file, or the same code in memory."""
