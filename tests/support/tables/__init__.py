"""Tables and logs that tests are made on."""
