"""What an author writes: an `Agent`, its skills, and the `Turn` each call gets."""
