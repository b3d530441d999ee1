"""Many agents and their tasks as operators see them: the operator's API, which reads the log."""
