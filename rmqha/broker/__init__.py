"""The broker: what clients and administrators ask of a master or a slave."""
