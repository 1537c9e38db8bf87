"""What each operation kind of the catalogue computes, in plain torch; a backend puts its own forms over these.

One file a family. An operator takes (op, inputs, step) and returns the values of the op's outputs in order; caches are
written in place.
"""
