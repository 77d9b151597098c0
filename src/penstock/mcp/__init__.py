"""What a language model may ask of penstock, by the Model Context Protocol: tools that only read."""
