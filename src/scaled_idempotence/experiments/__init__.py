"""One module a section of the paper: each takes a model and gives tidy tables."""
