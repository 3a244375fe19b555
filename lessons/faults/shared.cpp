// Holds the precompiled header of the faults.
