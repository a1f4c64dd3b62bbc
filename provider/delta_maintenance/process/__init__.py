"""The process of a job: how it starts and ends, what it needs, and the code that it takes to other machines."""
