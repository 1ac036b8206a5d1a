"""`hbox health judge`: inputs in files, judged as health-monitor judges them."""
