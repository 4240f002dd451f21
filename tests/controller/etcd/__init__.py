"""Tests for L{rmqha.controller.etcd}."""
