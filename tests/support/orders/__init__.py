"""A small world in which every order of every step is tried, decided by the provider's own `begin` and `weigh`.

Rooms: `world` (what there is: service, Airflow, people, and what must never happen), `tries` (the steps of a try,
driving the real decisions), `rules` (what can be taken away), `search` (every order, and the shortest way to what
must not happen). The model is the specification of airflow_tds/durability: what it needs is what the docs promise.
"""
