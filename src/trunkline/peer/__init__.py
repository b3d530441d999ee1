"""Work done elsewhere and recorded here: a remote agent's task as a task of ours, and calls from a skill."""
