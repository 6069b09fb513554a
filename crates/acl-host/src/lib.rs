//! An ACL device made of threads and memory: the embedded implementation behind the same function table
