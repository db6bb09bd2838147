"""Model families: each a list of operations, as Transformers' own classes run them."""
