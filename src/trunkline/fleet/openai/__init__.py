"""The agents of a hub as the models of an OpenAI-compatible API."""
