"""The names and flags of all commands, a file per family; what they do is imported when they are called."""
