"""Exchange of the broker with name servers and with the other brokers of its cluster."""
