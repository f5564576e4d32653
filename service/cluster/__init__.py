"""Jobs on many machines: Dask moves one task for each job and nothing else."""
