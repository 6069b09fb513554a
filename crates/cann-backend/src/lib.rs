//! Devices, pools, buffers, graphs, lowering and the task queue over an ACL function table
