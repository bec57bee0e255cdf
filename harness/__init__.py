"""What the benchmark, the demo and the tests share: throw-away clusters and listening clients."""
