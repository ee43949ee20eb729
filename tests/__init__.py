"""Tests, one folder or file a part of the package. A package, as some libraries install a ``tests`` of their own."""
