"""The remoting protocol on connections: requests and answers, both ways, servers and clients."""
