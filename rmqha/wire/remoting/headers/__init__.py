"""The custom headers of requests and answers, by family.

C{@ivar} names what the attribute's name does not say.  Times are milliseconds since the
epoch, as on the wire.  Which code carries which header: docs/protocol/remoting.md,
Request codes.
"""
