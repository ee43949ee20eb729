"""Whole corpora: every text of a data set attributed, by one process or many, through kills and restarts.

    reader ──records──▶ windows ──tasks──▶ engine (workers that hold the model) ──shards──▶ store
                           ▲                                                                 │
                           └──────────────── index of what is done ◀─────────────────────────┘

A **window** is a fixed number of input records and the unit of resuming: its rows become one Parquet shard, which is
there whole or not at all. Batches are formed inside a window and are a function of it alone, so that the same
input gives the same bits whichever run, worker or machine computed it.
"""

from __future__ import annotations
