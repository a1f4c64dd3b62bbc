"""A fleet of tables that is kept healthy by a policy.

A night of a fleet runs through these modules, in this order:

1. :mod:`~delta_maintenance.fleet.policy` reads the policy: which tables, what healthy means, what it may cost.
2. :mod:`~delta_maintenance.fleet.discovery` finds the tables.
3. :mod:`~delta_maintenance.fleet.survey` reads the facts of all of them, and of most only that nothing is new.
4. :mod:`~delta_maintenance.fleet.decision` decides from facts, policy, history and time what is done, in which order, and for everything
   else why not. It is pure.
5. :mod:`~delta_maintenance.fleet.run` does the work, each table under a lease (:mod:`~delta_maintenance.fleet.lease`).
6. :mod:`~delta_maintenance.fleet.account` keeps the night, what is remembered of it, and its report.
"""
