"""Workflow definitions: how a document is read, checked, hashed and signed. Nothing here runs one."""
