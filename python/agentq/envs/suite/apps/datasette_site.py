"""Datasette over SQLite, with forms that write. Runs in the applications' Python: make or serve, and a file."""

import os
import random
import sqlite3
import sys
import threading

CITIES = ("Rome", "Paris", "Lyon", "Madrid", "Oslo", "Turin", "Ghent", "Porto")
QUERIES = {
    "add_person": "insert into people (name, city, age) values (:name, :city, :age)",
    "move_person": "update people set city = :city where id = :id",
    "write_note": "insert into notes (about, said) values (:about, :said)",
}


def make():
    """400 people and no notes."""
    rng = random.Random(1)
    with sqlite3.connect(sys.argv[2]) as database:
        database.execute("create table people (id integer primary key, name text, city text, age integer)")
        database.execute("create table notes (id integer primary key, about text, said text)")
        rows = [(i, f"Person {i}", rng.choice(CITIES), rng.randint(18, 90)) for i in range(1, 401)]
        database.executemany("insert into people values (?, ?, ?, ?)", rows)


def serve():
    """Say the port and serve until the input ends."""
    import asyncio
    import socket

    import uvicorn
    from datasette.app import Datasette

    queries = {name: {"sql": sql, "write": True} for name, sql in QUERIES.items()}
    metadata = {"databases": {"data": {"queries": queries}}}
    app = Datasette([sys.argv[2]], metadata=metadata)
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    asyncio.run(uvicorn.Server(uvicorn.Config(app.app(), log_level="error")).serve([listening]))


if __name__ == "__main__":
    {"make": make, "serve": serve}[sys.argv[1]]()
