"""A Spark Connect server, by the messages of its protocol.

PySpark's client starts an operation only to wait for it. A detached rewrite needs the steps one by one: start an operation under
an id that is known before, look at it from another process, fetch its result, interrupt it.

1. An operation is started as reattachable. The server then keeps running it, and buffers its responses, while no client is
   attached. It drops an operation that no client has asked for during some minutes
   (``spark.connect.execute.manager.detachedTimeout``), so a follower has to look more often than that.
2. A stream that ends without its last message goes on at the next attachment. So does one that the network broke.
3. Responses stay in the server's buffer until the result was fetched. A follower that is restarted, and the job that fetches
   the result, read them from the beginning.
4. The token of the connection travels as gRPC sends credentials. It is in no message, and in no error of this module.

PySpark is imported within functions: also a triggerer imports this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.printable import printable
from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
from delta_maintenance.errors import OperationFailed, OperationLost, SparkUnreachable

if TYPE_CHECKING:
    import grpc

#: A server that starts executors for its first operation answers late.
_SECONDS_TO_ANSWER = 60.0
_SECONDS_TO_START = 600.0
_SECONDS_TO_END = 10.0
#: A server that is restarted, or fails over, is back within this time, or the operation is lost.
_SECONDS_OF_OUTAGE = 300.0
_LONGEST_PAUSE_SECONDS = 15.0
#: The server has no such operation (any more), or no such session.
_GONE = (
    "OPERATION_NOT_FOUND",
    "OPERATION_ABANDONED",
    "SESSION_NOT_FOUND",
    "SESSION_CHANGED",
    "SESSION_CLOSED",
)
#: It has the operation, and not its first responses: somebody else has fetched them.
_CONSUMED = ("POSITION_NOT_AVAILABLE", "POSITION_NOT_FOUND")


class OperationState(Struct, frozen=True):
    """What a look at an operation has found.

    :param is_over: ``True``: the operation does not run any more; its result, or its error, can be fetched.
    :param is_lost: ``True``: the server does not have it. It is over then, too.
    :param done_tasks: number of finished tasks in its latest stage, whose tasks are the bins; ``None``: not known yet.
        ``total_tasks``: number of all tasks in this stage, likewise.
    """

    is_over: bool
    text: str
    done_tasks: int | None = None
    total_tasks: int | None = None
    is_lost: bool = False


class ConnectServer:
    """A client of one session on a server. It is a context manager that closes the connection, not the session.

    :param remote: the address, as ``SPARK_REMOTE`` has it: ``sc://host:port/;token=…;use_ssl=true``.
    """

    def __init__(self, remote: str, rewrite: DetachedRewrite) -> None:
        """
        :raises InvalidRequest: the address is wrong, or the client of Spark Connect is not installed.
        """
        proto, services = _protocol()
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.client import DefaultChannelBuilder

        try:
            builder = DefaultChannelBuilder(remote)
        except (PySparkException, ValueError):  # the message would quote the address, with its token
            raise InvalidRequest(
                "The address of the Spark Connect server cannot be read. It has to be of the form sc://host:port, with "
                "parameters like /;use_ssl=true behind it."
            ) from None
        self.endpoint = builder.endpoint
        self._proto = proto
        self._metadata = builder.metadata()
        self._channel = builder.toChannel()
        self._stub = services.SparkConnectServiceStub(self._channel)
        self._rewrite = rewrite
        self._ids = {
            "session_id": rewrite.session_id,
            "user_context": proto.UserContext(user_id=rewrite.user_id),
            "client_type": builder.userAgent,
        }

    def __enter__(self) -> ConnectServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def require_answer(self) -> None:
        """Make sure that the server is there and lets this client in.

        :raises SparkUnreachable: it does not answer.
        :raises InvalidRequest: it refuses the token, or this is no Spark Connect server.
        """
        ask = self._proto.ConfigRequest.Get(keys=["spark.app.id"])
        request = self._proto.ConfigRequest(
            **self._ids, operation=self._proto.ConfigRequest.Operation(get=ask)
        )
        with self._errors_named():
            self._stub.Config(request, metadata=self._metadata, timeout=_SECONDS_TO_ANSWER)

    def start(self, plan: Any) -> None:
        """Start the operation, and return when the server runs it. If it runs already, leave it alone.

        :param plan: a plan of the protocol.
        :raises OperationLost: the ids were used before, and the server has no such operation any more.
        """
        options = self._proto.ReattachOptions(reattachable=True)
        request = self._proto.ExecutePlanRequest(
            **self._ids,
            operation_id=self._rewrite.operation_id,
            plan=plan,
            request_options=[self._proto.ExecutePlanRequest.RequestOption(reattach_options=options)],
        )
        with self._errors_named(at_start=True):
            call = self._stub.ExecutePlan(request, metadata=self._metadata, timeout=_SECONDS_TO_START)
            next(call)  # the schema of the result: the plan was understood, and the operation runs
            call.cancel()

    def look(self, seconds: float) -> OperationState:
        """Stay attached for so long, and return what is known then. An outage counts as running.

        :raises InvalidRequest: the server refuses the token.
        """
        import grpc

        done: int | None = None
        total: int | None = None
        try:
            for response in self._reattach(None, seconds):
                # The first stage distributes the tasks, the last one carries them out.
                if len(response.execution_progress.stages) > 1:
                    stage = max(response.execution_progress.stages, key=lambda stage: stage.stage_id)
                    done, total = stage.num_completed_tasks, stage.num_tasks
                if response.HasField("result_complete"):
                    return OperationState(True, "the rewrite has ended", total, total)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return OperationState(False, "running", done, total)
            try:
                self._raise_named(error)
            except SparkUnreachable as outage:
                return OperationState(False, str(outage), done, total)
            except (OperationLost, OperationFailed) as end:
                return OperationState(True, str(end), done, total, isinstance(end, OperationLost))
        return OperationState(False, "running", done, total)

    def fetch(self) -> list[dict[str, Any]]:
        """Wait until the operation is over, and return the rows of its result.

        :raises OperationFailed: it failed; the error holds what the server says.
        :raises OperationLost: the server does not have it, or not its whole result.
        :raises SparkUnreachable: the server has not answered for minutes.
        """
        import grpc

        rows: list[dict[str, Any]] = []
        last: str | None = None
        pause, outage_since = 0.0, time.monotonic()
        while True:
            try:
                for response in self._reattach(last, None):
                    pause, outage_since = 0.0, time.monotonic()
                    last = response.response_id
                    if response.HasField("arrow_batch"):
                        rows += _rows_of(response.arrow_batch.data)
                    if response.HasField("result_complete"):
                        return rows
                # The server ends a stream that has lasted for some minutes.
                outage_since = time.monotonic()
            except grpc.RpcError as error:
                try:
                    self._raise_named(error)
                except SparkUnreachable:
                    if time.monotonic() - outage_since > _SECONDS_OF_OUTAGE:
                        raise
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, 2 * pause + 0.1)

    def interrupt(self) -> None:
        """End the operation with its tasks. It may be over, or unknown."""
        request = self._proto.InterruptRequest(
            **self._ids,
            interrupt_type=self._proto.InterruptRequest.INTERRUPT_TYPE_OPERATION_ID,
            operation_id=self._rewrite.operation_id,
        )
        self._end(self._stub.Interrupt, request)

    def release(self) -> None:
        """End the session with all that runs in it. It may be over, or unknown."""
        self._end(self._stub.ReleaseSession, self._proto.ReleaseSessionRequest(**self._ids))

    def _end(self, call: Callable[..., Any], request: Any) -> None:
        try:
            with self._errors_named():
                call(request, metadata=self._metadata, timeout=_SECONDS_TO_END)
        except (OperationLost, OperationFailed):
            return  # it is over

    def _reattach(self, last_response_id: str | None, seconds: float | None) -> Iterator[Any]:
        request = self._proto.ReattachExecuteRequest(
            **self._ids, operation_id=self._rewrite.operation_id, last_response_id=last_response_id
        )
        responses: Iterator[Any] = self._stub.ReattachExecute(
            request, metadata=self._metadata, timeout=seconds
        )
        return responses

    @contextmanager
    def _errors_named(self, *, at_start: bool = False) -> Iterator[None]:
        """Turn the errors of gRPC into errors of this package."""
        import grpc

        try:
            yield
        except grpc.RpcError as error:
            if at_start and "OPERATION_ALREADY_EXISTS" in (error.details() or ""):
                return
            self._raise_named(error)

    def _raise_named(self, error: grpc.RpcError) -> None:
        """Raise what an error of gRPC means.

        :raises SparkUnreachable: the network or the server failed, and the same request may succeed.
        :raises InvalidRequest: the server does not let this client in.
        :raises OperationLost: the server does not have the operation.
        :raises OperationFailed: it failed.
        """
        from google.rpc import error_details_pb2
        from grpc import StatusCode
        from grpc_status import rpc_status

        code, details = error.code(), printable(error.details() or "")
        if code in (StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED):
            raise InvalidRequest(
                f"The Spark Connect server {self.endpoint} refuses this client ({details}). Check the token and the user in "
                "the Spark connection."
            ) from None
        if code is StatusCode.UNIMPLEMENTED:
            raise InvalidRequest(
                f"{self.endpoint} answers, and is no Spark Connect server ({details}). Check host and port of the Spark "
                "connection."
            ) from None
        gone = next((name for name in (*_GONE, *_CONSUMED) if name in details), None)
        if gone is not None:
            raise OperationLost(self.endpoint, gone) from None
        status = rpc_status.from_call(error)
        info = error_details_pb2.ErrorInfo()
        for detail in status.details if status is not None else ():
            if detail.Unpack(info):
                break
        # Only Spark explains its errors in this way; else a proxy or the network failed.
        if not info.reason or "INVALID_CURSOR.DISCONNECTED" in details:
            raise SparkUnreachable(self.endpoint, f"{code.name}: {details}") from None
        raise OperationFailed(self._full_message(info) or details) from None

    def _full_message(self, info: Any) -> str:
        """The messages of an error and its causes, which the status shortens; empty if the server cannot tell them."""
        import grpc

        error_id = info.metadata.get("errorId")
        if not error_id:
            return ""
        request = self._proto.FetchErrorDetailsRequest(**self._ids, error_id=error_id)
        try:
            found = self._stub.FetchErrorDetails(request, metadata=self._metadata, timeout=_SECONDS_TO_ANSWER)
        except grpc.RpcError:
            return ""
        if not found.HasField("root_error_idx"):
            return ""
        messages, index = [], found.root_error_idx
        for _ in found.errors:
            messages.append(found.errors[index].message)
            if not found.errors[index].HasField("cause_idx"):
                break
            index = found.errors[index].cause_idx
        return "\n".join(messages)


def cancel(remote: str, rewrite: DetachedRewrite) -> None:
    """End a rewrite and its session on the server.

    :raises SparkUnreachable: the server does not answer.
    """
    with ConnectServer(remote, rewrite) as server:
        server.interrupt()
        server.release()


def import_client() -> None:
    """Import what a :class:`ConnectServer` needs, which takes a second.

    :raises InvalidRequest: the client is not installed.
    """
    _protocol()
    import google.rpc.error_details_pb2  # noqa: F401
    import grpc
    import grpc_status.rpc_status  # noqa: F401
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: F401

    # gRPC imports a part of itself only for the first channel. This one connects to nothing.
    grpc.insecure_channel("localhost").close()


def _protocol() -> tuple[Any, Any]:
    """The messages of Spark Connect, and its services.

    :raises InvalidRequest: the client is not installed.
    """
    try:
        import pyspark.sql.connect.proto.base_pb2_grpc as services
        from pyspark.sql.connect import proto
    except ImportError as error:
        raise InvalidRequest(
            f"Spark Connect needs PySpark's client, which is not installed here ({error}). Install pyspark-client, at the "
            "version of the server or a newer one."
        ) from error
    return proto, services


def _rows_of(batch: bytes) -> list[dict[str, Any]]:
    import pyarrow as pa

    rows: list[dict[str, Any]] = pa.ipc.open_stream(batch).read_all().to_pylist()
    return rows
