"""A small deterministic world around the real scheduler: simulated machine, runners and clients on trio's fake clock.

Nothing in `src` knows of it: the world implements the same Protocols as the real machine and the real runners.
"""
