"""Remoting commands over TCP; knows handler callables, never a processor or a store."""
