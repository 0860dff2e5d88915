"""Request processors of the broker and the name server: a family of codes a class, a code a method."""
