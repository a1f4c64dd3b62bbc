# An image for Spark's drivers and executors. Build it from the root of a clone:
#   docker build -f docs/guides/cluster.Dockerfile --build-arg SPARK_IMAGE=your/spark:4.1 -t your/spark-delta:4.1 .
# SPARK_IMAGE is the image that your applications use. It has Spark 4.1 or later, Java 17 or later and Python 3.10 or later with pip.
ARG SPARK_IMAGE
FROM ${SPARK_IMAGE}
USER root

# The libraries of a job. For Google Cloud Storage replace botocore by "google-auth[requests]", for Azure by azure-identity.
RUN python3 -m pip install --no-cache-dir \
    "pyarrow>=24" "numpy>=1.26" "fsspec>=2024.6" "pyroaring>=1.0" "msgspec>=0.21" "sqlglot>=26" \
    "obstore>=0.11" "botocore>=1.35"

# The program of drivers: cluster_application="local:///opt/delta/delta_maintenance/entrypoint/run_job.py".
# An image for executors only does without: the job brings this package to them.
COPY provider/delta_log /opt/delta/delta_log
COPY provider/delta_maintenance /opt/delta/delta_maintenance

# The user of Spark's own images.
USER 185
