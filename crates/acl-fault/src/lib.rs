//! Injected failures and call logs over any ACL function table (tests only)
