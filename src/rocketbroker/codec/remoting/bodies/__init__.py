"""codec.remoting.bodies"""
