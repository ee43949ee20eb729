"""``python -m flowgraph.cli``: the command line where the ``flowgraph`` script is not on the path."""

from flowgraph.cli import main

if __name__ == "__main__":
    main()
