"""The HTTP server: connections, limits, drain, workers. Knows nothing of A2A."""
