"""How the agents of a fleet do: what became of their tasks, how long it took and what it cost."""
