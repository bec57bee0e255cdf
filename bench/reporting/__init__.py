"""From raw lines to figures, tables, plots, the page of a run, and the project's documents."""
