"""Going out safely. The only room that dials."""
