"""What the project promises about speed and weight, measured. `make bench` prints it; tests never depend on it."""
