"""Who does the work: the runner, owners of running tasks, feeds, takeover, delivery, retention, limits."""
