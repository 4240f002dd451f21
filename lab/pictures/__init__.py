"""The pictures of the guide, made from a cluster that runs."""
