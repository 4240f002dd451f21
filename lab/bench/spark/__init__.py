"""Measurements of the pipeline on Spark: C{python -m lab.bench.spark}."""
