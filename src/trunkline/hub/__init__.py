"""A workspace as a process: its files, its agents on a host, and the mocks that it runs."""
