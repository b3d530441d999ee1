"""Which agents there are: what files, the API and the agents themselves say, and what their cards add."""
