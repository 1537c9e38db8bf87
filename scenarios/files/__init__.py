"""Reading and writing files strictly: YAML 1.2 with places, validation in a person's words, whole files or none."""
