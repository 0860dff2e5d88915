"""Request processors of the broker and the name server, one module for each request."""
