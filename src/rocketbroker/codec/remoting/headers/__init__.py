"""codec.remoting.headers"""
