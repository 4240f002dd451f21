"""Master and slave, the acknowledgement ledger and the divergence guard."""
