"""The caching allocator: a stream of allocations and frees in, allocated, active and reserved bytes out."""
