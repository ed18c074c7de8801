"""Learning on the fly: an engine is called where the model is not certain, and nowhere else."""
