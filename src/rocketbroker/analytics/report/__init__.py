"""The report on stores: one HTML page, and its figures as PNG. Made from small aggregates only."""
