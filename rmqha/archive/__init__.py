"""Archives of logs: receiving one as it grows, and building a store from one."""
