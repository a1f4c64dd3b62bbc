"""Layouts: which rows go together into a file, so that queries on some columns skip most files.

Rows are not sorted as a whole. A sample tells the distribution of the layout's columns (:mod:`~.ranks`). From it follows a rule
that gives each row a bucket (:mod:`~.bucketing`): along a space-filling curve (:mod:`~.curves`) or by a tree of quantiles
(:mod:`~.kd_tree`). A file holds the rows of consecutive buckets. The modules are pure: they read and write no files.
"""
