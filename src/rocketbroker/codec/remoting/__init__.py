"""The RocketMQ remoting protocol as pure functions: frames, headers, bodies, request and response codes.

Nothing here reads or writes: ``transport`` moves the bytes.
"""
