"""What is told of the server: metrics, traces, the access log, and the records that they are made from."""
