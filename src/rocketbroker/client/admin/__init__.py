"""Admin client of name servers and brokers."""
