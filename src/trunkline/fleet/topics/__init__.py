"""Topics: names that are given to events of the log, for whoever wants to hear of some of them."""
