"""The command ``mqstore``: checks, shows and repairs the files of a store that no broker has open."""
