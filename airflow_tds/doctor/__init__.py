"""A connection examined end to end: what works, what is assumed and proven, what to set.

    reports     findings as values; a report as text or JSON; never a secret
    patient     the service under examination: its settings, one runtime, operations by any wire map
    reaching    from the address to the credentials; nothing is changed
    reading     statistics, pages, a result by its presigned address; nothing is changed
    writing     each write proven by row counts, on a scratch table that is named for it
    waiting     what a job says that has no data, and how soon one with data is noticed
    proposals   routes and names from an OpenAPI document, not proven
    options     what the command takes, as data
    command     the order of the checks, what is printed, the exit code

Nothing here guesses for good: what is proposed is printed, to be pasted by a person. Airflow is imported only to read
a connection of its.
"""
