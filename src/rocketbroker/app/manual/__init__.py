"""Pages of the manual that are generated from the code: ``python -m rocketbroker.app.manual`` writes all of them."""
