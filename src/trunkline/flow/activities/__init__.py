"""What the nodes of a workflow have done: steps, model calls, tool calls and delegations."""
