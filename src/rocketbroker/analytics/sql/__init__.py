"""Questions about messages: the rows that they count (``facts.py``), and queries over these rows (``*.sql``)."""
