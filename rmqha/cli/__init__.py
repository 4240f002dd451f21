"""The C{rmqha} command."""
