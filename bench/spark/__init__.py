"""
Measurements of the pipeline on Spark: C{python -m bench.spark}.
"""
