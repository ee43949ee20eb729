"""A tiny model on disk, for workers to load."""

from __future__ import annotations

import pytest

from tests.models import tiny


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Folder of a perturbed BERT of three layers with its word-piece tokenizer."""
    folder = tmp_path_factory.mktemp("tiny-bert")
    network, tokenizer = tiny("bert")
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
