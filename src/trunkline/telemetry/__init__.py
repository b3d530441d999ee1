"""What an operator sees: logs, counts, metrics and traces. Imports nothing of the package but errors and clock."""
