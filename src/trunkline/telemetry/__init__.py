"""What an operator sees: logs, counts, metrics and traces. Imports only errors and clock."""
