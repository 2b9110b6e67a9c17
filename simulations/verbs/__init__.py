"""What `python -m simulations` can do: one module for each verb.

A verb's docstring is its help; `arguments(parser)` declares what it takes, `main(options)` does it and returns the
process's exit status.
"""
