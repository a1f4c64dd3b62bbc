"""The fleets of the page *Delta tables*: the newest night of each, table by table, and what persons have said of the tables."""
