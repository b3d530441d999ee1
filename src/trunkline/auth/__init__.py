"""Identity of callers: principals, keys, tokens, scopes."""
