"""The platform on one machine: its processes, kept alive, and the folder in which its state is. Commands import the modules that they need."""
