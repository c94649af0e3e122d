"""Payloads: what a write delivered, read into rows of exactly a table's columns, or refused.

One file per format. Each offers the same two things: the columns that a first load would create, and the
SELECT that yields the rows strictly. A value that is not exactly of its column's type fails the job, with
an error that names row, column, value and reason. DuckDB's own error texts never pass: they carry paths,
whole lines and SQL.
"""
