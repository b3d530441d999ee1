"""Who does the work: feeds, owners, the runner. The only room that starts background tasks."""
