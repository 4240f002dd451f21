"""Transports and endpoints."""
