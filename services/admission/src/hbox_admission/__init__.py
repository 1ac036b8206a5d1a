"""The admission endpoint: what pods with devices leave out is written into them when they are made."""
