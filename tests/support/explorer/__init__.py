"""An explorer of interleavings: the real code of several writers, under every order of their storage calls.

* :mod:`tests.support.explorer.world`: a store in memory that stops each actor at each of its calls, and the faults;
* :mod:`tests.support.explorer.actors`: what writers do: compaction, append, delete, update, restore, checkpoint, vacuum, …;
* :mod:`tests.support.explorer.history`: what has to hold in every state, checked on the raw log by a model that knows nothing
  of the code under test;
* :mod:`tests.support.explorer.search`: every schedule with at most so many faults, or a seeded sample of them.
"""
