"""What tests put around the servers: launchers that no command of the product offers."""
