"""Which agent of the catalogue does a piece of work: the choice, its guards, and who carries it out."""
