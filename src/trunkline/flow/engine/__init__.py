"""The engine of workflows: rows, the pure walk through a definition, and the executor that does its work."""
