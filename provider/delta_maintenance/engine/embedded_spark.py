"""Settings of a Spark that runs in the process of its driver, for one job."""

from __future__ import annotations

#: The job is short: no optimising compiler, and a serial collector. With one compiler alone a JVM reserves 48 MiB for compiled code;
#: when they are full, as after some minutes of many different queries, it compiles nothing more.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
