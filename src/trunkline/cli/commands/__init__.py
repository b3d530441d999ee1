"""The names and flags of all commands, a file per heading of the help; their work is imported when called."""
