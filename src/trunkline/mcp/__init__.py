"""MCP both ways: skills of agents as an MCP server, and MCP servers of the operator as tools of skills."""
