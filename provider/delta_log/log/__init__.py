"""The files of the log: their names, their actions, and their replay."""
