"""From an Airflow connection to the storage options of a table.

:data:`~airflow_delta.connections.kinds.KINDS` lists the types of connection. Each has a function from the fields of a connection to
storage options, in a module for its store. Only :mod:`~airflow_delta.connections.aws_session` asks another provider's hook.
"""
