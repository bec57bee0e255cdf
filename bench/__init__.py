"""The benchmark: bench/run measures the stock server and pg_herald; bench/report shows the results.

runner.py       rounds and points, raw lines, the exit status; family.py defines the parts of a family
families/       a module for each question: its measurements, tables and plots
measuring/      how one load is measured on one server; profiles; the servers of peers
reporting/      figures, tables and plots from raw lines: the page of a run, the project's documents
clients/        C programs that make the load and that listen
micro/, inval/  C programs that run src/core/ without a server
dummy_relcache/ the cache that pg_herald's is compared with
scripts/        pgbench scripts
HISTORY.md      the optimizations that were tried, and their gain
"""
