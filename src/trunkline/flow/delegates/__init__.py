"""Delegations that are plain calls: a mock, the `/tasks` API, MCP tools and functions of this process."""
