"""The command ``mqstore``: check, show and repair the files of a stopped store."""
