"""Listing what lies below a table's root, in this process or in parts on the executors of a cluster.

:mod:`~delta_maintenance.listing.listing` is the result and how this process makes it;
:mod:`~delta_maintenance.listing.distributed` cuts the tree into parts, and :mod:`~delta_maintenance.listing.part` lists one
of them; :mod:`~delta_maintenance.listing.inventory` reads a listing that the store or the user made.
:mod:`~delta_maintenance.listing.hidden_names` says what is never listed.
"""
