"""DROP FEATURE: makes a table one that older readers and writers can use."""
