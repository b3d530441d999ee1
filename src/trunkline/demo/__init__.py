"""The demo and bench agent, the agents for the official test kit, and the tour."""

from trunkline.demo.agent import agent, tck, tck03

__all__ = ["agent", "tck", "tck03"]
