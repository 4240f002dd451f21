"""From a send request to a record in the log, and the messages a broker writes by itself."""
