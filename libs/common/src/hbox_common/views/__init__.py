"""Objects of the platform as plain dictionaries, made from its messages: what `hbox ... -o json` prints and the HTTP API serves. Pure."""
