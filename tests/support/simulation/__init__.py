"""A world in one thread and virtual time, over the provider's own code, in which everything may go wrong.

Rooms, each importing those before it only: `faults` (what goes wrong, as data), `service` (the service's hidden state),
`tries` (what a worker runs: the real operators over a simulated runtime and store), `world` (Airflow, people, the
clock, and what must never happen). Every choice is one seeded generator's, so a seed tells a whole story again.
Real are: operators, durability, decisions, records, stores, the client's operations and wire map, watches and outcomes.
Simulated are: the network, the service, Airflow's database and scheduler, the triggerer's loop, time.
"""
