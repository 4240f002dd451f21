"""Settings to a service tree, one module a role."""
