"""Filters over the properties of messages, in the SQL92 of RocketMQ's consumers."""
