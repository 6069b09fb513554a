//! The ACL and aclnn C interface as one list: types, function table, loader
