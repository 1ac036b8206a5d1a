"""Where in the fabric gangs go: HyperNodes as columns, domains that hold a gang, and the fewest leaves in them."""
