"""What the pipeline costs a pair: C{python -m lab.bench.spark}."""
