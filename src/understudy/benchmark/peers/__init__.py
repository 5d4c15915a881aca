"""Other packages as benchmark methods: a TOML file and an adapter each."""
