"""Work on a SLURM cluster: what is sent there, how it is watched, and how it goes on."""
