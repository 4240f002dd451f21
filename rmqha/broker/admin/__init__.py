"""What administrators ask of a broker, and who may."""
