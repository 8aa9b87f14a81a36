"""Two states of a design side by side: what went, what came, which proof was lost."""
