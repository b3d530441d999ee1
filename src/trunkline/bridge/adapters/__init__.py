"""Tools for other frameworks, one file each."""
