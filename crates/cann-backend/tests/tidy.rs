//! The shape of the project as a test: which room may depend on which, and where unsafe may be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Rooms and the rooms they may import, outside tests. A new edge is a decision: see docs/ARCHITECTURE.md.
const ROOMS: &[(&str, &[&str])] = &[
    ("acl-sys", &[]),
    ("acl-host", &["acl-sys"]),
    ("acl-host-cabi", &["acl-sys", "acl-host"]),
    ("acl-fault", &["acl-sys"]),
    ("acl-fault-cabi", &["acl-sys", "acl-fault", "acl-host"]),
    ("gguf", &[]),
    ("cann-backend", &["acl-sys", "gguf"]),
];
const ADDON: &[&str] = &["acl-sys", "acl-host", "cann-backend", "gguf"];

/// Folders and files that may hold unsafe code, from the root or from `crates/`.
const UNSAFE: &[&str] = &[
    "acl-sys/src",
    "acl-fault/src",
    "acl-fault-cabi/src",
    "acl-host-cabi/src",
    "acl-host/src/ffi",
    "acl-host/src/runtime",
    "acl-host/src/kernels",
    // Handles behind C pointers, typed views of device memory, and the copies between them.
    "acl-host/src/executor.rs",
    "acl-host/src/tensor.rs",
    "acl-host/src/ops/transfer.rs",
    "cann-backend/src/acl",
    // napi's promises have no safe form that thousands of them can afford.
    "src/promise.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/ is in the project").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Rooms that a manifest names in `[dependencies]`, target-specific ones included.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let (mut found, mut wanted) = (BTreeSet::new(), false);
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            wanted = (section.ends_with("dependencies") && !section.ends_with("dev-dependencies"))
                && !section.starts_with("workspace");
            if let Some((table, name)) = section.rsplit_once('.')
                && table.ends_with("dependencies")
                && !table.ends_with("dev-dependencies")
                && !table.starts_with("workspace")
            {
                found.insert(name.to_owned());
            }
        } else if wanted && let Some((name, _)) = line.split_once(['=', '.']) {
            found.insert(name.trim().trim_matches('"').to_owned());
        }
    }
    found.retain(|name| ROOMS.iter().any(|(room, _)| room == name));
    found
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|e| e.expect("readable").path()) {
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn rooms_import_only_what_they_may() {
    let root = root();
    for entry in std::fs::read_dir(root.join("crates")).expect("crates/") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let Ok(manifest) = std::fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let (_, may) = ROOMS.iter().find(|(room, _)| *room == name).unwrap_or_else(|| panic!("{name} is no room"));
        for edge in dependencies(&manifest) {
            assert!(may.contains(&edge.as_str()), "{name} must not depend on {edge}");
        }
    }
    for edge in dependencies(&read(&root.join("Cargo.toml"))) {
        assert!(ADDON.contains(&edge.as_str()), "the addon must not depend on {edge}");
    }
}

#[test]
fn manifests_are_understood() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\ngguf.workspace = true\nhalf = \"2\"\n[dev-dependencies]\nacl-host = { path = \"\" }\n\
                    [target.'cfg(unix)'.dependencies.acl-sys]\npath = \"\"\n[workspace.dependencies]\nacl-fault = \"1\"\n";
    assert_eq!(dependencies(manifest).into_iter().collect::<Vec<_>>(), ["acl-sys", "gguf"]);
}

#[test]
fn unsafe_is_where_it_may_be() {
    let root = root();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).expect("crates/") {
        rust_files(&entry.expect("readable").path().join("src"), &mut files);
    }
    rust_files(&root.join("src"), &mut files);
    assert!(files.len() > 20);
    let allowed: Vec<_> = UNSAFE.iter().flat_map(|at| [root.join(at), root.join("crates").join(at)]).collect();
    // Files and folders in the first column of the tables.
    let document = read(&root.join("docs/unsafe.md"));
    let cells = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" |"));
    let named: Vec<_> =
        cells.flat_map(|(cell, _)| cell.split("`, `")).map(|name| name.trim_matches(['`', '/'])).collect();
    for path in &files {
        let unsafe_line = read(path).lines().position(|line| {
            let code = line.split("//").next().unwrap_or("");
            code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
        });
        let Some(n) = unsafe_line else { continue };
        let is_allowed = allowed.iter().any(|folder| path.starts_with(folder));
        assert!(is_allowed, "{}:{}: unsafe outside its rooms", path.display(), n + 1);
        let is_documented =
            named.iter().any(|name| path.ends_with(name) || path.parent().is_some_and(|p| p.ends_with(name)));
        assert!(is_documented, "{}: docs/unsafe.md does not have it", path.display());
    }
}

#[test]
fn the_backend_names_no_device() {
    let mut files = Vec::new();
    rust_files(&root().join("crates/cann-backend/src"), &mut files);
    for path in files {
        let text = read(&path);
        // Unit tests run on the embedded device; they come last in a file, or in a file of their own.
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        if path.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        assert!(!code.contains("acl_host"), "{} knows which device it runs on", path.display());
    }
}
