"""Where the rows of jobs go: Parquet files, and the tables that list them."""
