"""Models inside other programs: LAMMPS through `fix external`, i-PI through its socket."""
