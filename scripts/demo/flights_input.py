"""Makes flights for the demonstration, the same ones each time."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FIRST_DAY = datetime(2001, 1, 1)  # noqa: DTZ001 the real data is in local time, without a zone
FLIGHTS_A_DAY = 16_000
"""Number of flights a day, as in the real data."""

_AIRPORTS = [
    "ABQ",
    "ANC",
    "ATL",
    "AUS",
    "BDL",
    "BHM",
    "BNA",
    "BOS",
    "BUF",
    "BUR",
    "BWI",
    "CLE",
    "CLT",
    "CMH",
    "CVG",
    "DAL",
    "DCA",
    "DEN",
    "DFW",
    "DTW",
    "ELP",
    "EWR",
    "FLL",
    "GEG",
    "HNL",
    "HOU",
    "IAD",
    "IAH",
    "IND",
    "JAX",
    "JFK",
    "LAS",
    "LAX",
    "LGA",
    "LIT",
    "MCI",
    "MCO",
    "MDW",
    "MEM",
    "MIA",
    "MKE",
    "MSP",
    "MSY",
    "OAK",
    "OKC",
    "OMA",
    "ONT",
    "ORD",
    "PBI",
    "PDX",
    "PHL",
    "PHX",
    "PIT",
    "PVD",
    "RDU",
    "RNO",
    "RSW",
    "SAN",
    "SAT",
    "SDF",
    "SEA",
    "SFO",
    "SJC",
    "SLC",
    "SMF",
    "SNA",
    "STL",
    "TPA",
    "TUL",
    "TUS",
]

SCHEMA = pa.schema(
    [
        ("date", pa.timestamp("us")),
        ("delay", pa.int64()),
        ("distance", pa.int64()),
        ("origin", pa.large_string()),
        ("destination", pa.large_string()),
    ]
)
"""The columns of the real data."""


def write_flights(target: Path, days: int) -> int:
    """Write `days` days of flights to one Parquet file, the same bytes' worth each time.

    The first day is 2001-01-01.

    Returns:
        How many flights.
    """
    chance = random.Random(20010101)
    # A few hubs have most of the traffic, as in the real world.
    weights = [1 / (rank + 2) for rank in range(len(_AIRPORTS))]
    with pq.ParquetWriter(target, SCHEMA) as writer:
        for day in range(days):
            writer.write_table(_one_day(chance, weights, FIRST_DAY + timedelta(days=day)))
    return days * FLIGHTS_A_DAY


def _one_day(chance: random.Random, weights: list[float], day: datetime) -> pa.Table:
    count = FLIGHTS_A_DAY
    minutes = sorted(chance.randrange(5 * 60, 24 * 60) for _ in range(count))
    origins = chance.choices(_AIRPORTS, weights, k=count)
    destinations = chance.choices(_AIRPORTS, weights, k=count)
    # Now and then the delay is not known: `clean` drops those.
    delays = [
        None if chance.random() < 0.01 else round(chance.gauss(5, 12) + chance.expovariate(0.1)) for _ in range(count)
    ]
    return pa.table(
        {
            "date": [day + timedelta(minutes=minute) for minute in minutes],
            "delay": delays,
            "distance": [chance.randrange(80, 2700) for _ in range(count)],
            "origin": origins,
            "destination": destinations,
        },
        schema=SCHEMA,
    )
