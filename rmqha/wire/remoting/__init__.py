"""The remoting protocol of clients, brokers and name servers, sans-IO."""
