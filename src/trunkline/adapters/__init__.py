"""Foreign frameworks, one file each: our agents as their tools."""
