"""The command ``mqadmin``: one file for each sub-command."""
