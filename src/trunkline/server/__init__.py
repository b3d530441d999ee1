"""The A2A server as an ASGI application: both versions, JSON-RPC and REST, streams, cards."""
