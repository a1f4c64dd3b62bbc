"""What a machine may lack: the corpus, delta-spark, programs."""
