"""Filters in jq: plain ones in this process, all others in worker processes that can be killed."""
