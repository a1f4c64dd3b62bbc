"""A wrapper forwards all that a storage has, also what is added to it some day."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.storage import Storage
from delta_log.storage.wrapped import WrappedStorage
from delta_log.testing import FaultyStorage, MemoryStorage, StorageContract

METHODS = sorted(
    name for name, value in vars(Storage).items() if inspect.isfunction(value) and name[0] != "_"
)


class Noting(MemoryStorage):
    """Notes which of its methods are called, and with what."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = object()
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []


def noted(name: str) -> Any:
    def call(self: Noting, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((name, args, kwargs))
        return self.answer

    return call


for method in METHODS:
    setattr(Noting, method, noted(method))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_forwarded(name: str) -> None:
    inner = Noting()
    parameters = list(inspect.signature(getattr(Storage, name)).parameters.values())[1:]
    args = [object() for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    named = {parameter.name: object() for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    answer = getattr(WrappedStorage(inner), name)(*args, **named)
    assert inner.calls == [(name, tuple(args), named)]
    assert answer is (
        None if inspect.signature(getattr(Storage, name)).return_annotation == "None" else inner.answer
    )


def test_every_attribute_is_the_inner_ones() -> None:
    attributes = {
        name for name, value in vars(Storage).items() if name[0] != "_" and not inspect.isfunction(value)
    }
    assert attributes <= set(Storage.__annotations__)
    inner = MemoryStorage()
    for name in Storage.__annotations__:
        setattr(inner, name, object())
    wrapped = WrappedStorage(inner)
    for name in Storage.__annotations__:
        assert getattr(wrapped, name) is getattr(inner, name)


class TestWrappedDisk(StorageContract):
    race_rounds = 2
    large_bytes = 1 << 20

    @pytest.fixture
    def storage(self, tmp_path: Path) -> WrappedStorage:
        return WrappedStorage(LocalStorage(str(tmp_path / "table")))


class TestFaultyMemory(StorageContract):
    race_rounds = 2
    large_bytes = 1 << 20

    @pytest.fixture
    def storage(self) -> FaultyStorage:
        return FaultyStorage(MemoryStorage())
