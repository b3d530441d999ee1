"""Skills of agents as tools of models."""
