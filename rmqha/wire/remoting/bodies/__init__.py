"""The JSON bodies of requests and answers, by family.

They are read and written by L{rmqha.wire.remoting.json_body}.  Defaults are those of
Java.  Times are milliseconds since the epoch, as on the wire.
"""
