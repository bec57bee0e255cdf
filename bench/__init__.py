"""The benchmark: bench/run measures, stock beside herald; bench/report shows what was measured.

runner.py       rounds and points, raw lines, the exit status; family.py has what a family is made of
families/       a module for each question: what is measured for it, and its tables and plots
measuring/      how one load is measured on one server; profiles; the servers of peers
reporting/      figures, tables and plots from raw lines: the page of a run, the project's documents
clients/        C programs that make the load, and that listen
micro/, inval/  C programs that run src/core/ without a server
dummy_relcache/ the cache that pg_herald's is compared with
scripts/        what pgbench runs
HISTORY.md      what was tried, and what it gained
"""
