"""The unique id of a deletion vector, which is one half of the identity of a file action.

Protocol section "Derived Fields" of deletion vectors. It is made of three members of the descriptor; an absent offset
and offset 0 give different ids. This module needs the standard library only, since tasks compute ids on workers.
:func:`delta_log.log.action_columns.deletion_vector_ids` computes them for a column.
"""

from __future__ import annotations


def deletion_vector_id(storage_type: str, path_or_inline_dv: str, offset: int | None) -> str:
    """``uab^-aqEH.-t@S}K{vb[*k^@4``: storage type, path or inline vector, and ``@`` with the offset where there is one."""
    at = "" if offset is None else f"@{offset}"
    return f"{storage_type}{path_or_inline_dv}{at}"
