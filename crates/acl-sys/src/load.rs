//! dlopen as one source of a table. Where to look is the caller's business; the libraries stay open for the life of the
//! process, because function pointers and device threads of theirs outlive any owner we could name.

use std::ffi::c_void;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::table::{AclApi, AclFn, Group};

/// File names of each group, in order of preference. `libopapi.so` and the split operator libraries must not be mixed.
const CANDIDATES: &[(Group, &[&[&str]])] = &[
    (Group::Ascendcl, &[&["libascendcl.so"], &["libacl_rt.so"]]),
    (Group::Nnopbase, &[&["libnnopbase.so"]]),
    (
        Group::Opapi,
        &[&["libopapi.so"], &["libopapi_math.so", "libopapi_nn.so", "libopapi_transformer.so", "libopapi_cv.so"]],
    ),
];

/// One library that was looked for: where it was found, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub name: String,
    pub path: Option<PathBuf>,
    pub error: Option<String>,
}

/// A table from real libraries, with what was tried on the way.
#[derive(Debug)]
pub struct Loaded {
    pub api: AclApi,
    pub attempts: Vec<Attempt>,
}

/// No table: a library group could not be opened.
#[derive(Debug)]
pub struct LoadError {
    pub group: Group,
    pub attempts: Vec<Attempt>,
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no library of group {:?} could be opened", self.group)?;
        for attempt in &self.attempts {
            if let Some(error) = &attempt.error {
                write!(f, "; {}: {error}", attempt.name)?;
            }
        }
        Ok(())
    }
}
impl std::error::Error for LoadError {}

impl AclApi {
    /// Opens the vendor's libraries from the first folder of `folders` that has each, in dependency order, by absolute path.
    pub fn load(folders: &[PathBuf]) -> Result<Loaded, LoadError> {
        let mut attempts = Vec::new();
        let mut libraries: Vec<(Group, Library)> = Vec::new();
        for (group, alternatives) in CANDIDATES {
            let found = alternatives.iter().any(|names| {
                let opened: Vec<Library> = names.iter().filter_map(|n| open_in(folders, n, &mut attempts)).collect();
                let any = !opened.is_empty();
                libraries.extend(opened.into_iter().map(|l| (*group, l)));
                any
            });
            if !found {
                return Err(LoadError { group: *group, attempts });
            }
        }
        Ok(Loaded { api: table_of(libraries), attempts })
    }

    /// Opens one library that has every name: a stand-in, or an interposer.
    pub fn load_single(path: &Path) -> Result<Loaded, LoadError> {
        let mut attempts = Vec::new();
        match open(path, &path.display().to_string(), &mut attempts) {
            Some(library) => Ok(Loaded { api: table_of(vec![(Group::Ascendcl, library)]), attempts }),
            None => Err(LoadError { group: Group::Ascendcl, attempts }),
        }
    }
}

fn open_in(folders: &[PathBuf], name: &str, attempts: &mut Vec<Attempt>) -> Option<Library> {
    for folder in folders {
        let path = folder.join(name);
        if path.exists() {
            return open(&path, name, attempts);
        }
    }
    attempts.push(Attempt {
        name: name.to_owned(),
        path: None,
        error: Some(format!("not in any of {} folders searched", folders.len())),
    });
    None
}

fn open(path: &Path, name: &str, attempts: &mut Vec<Attempt>) -> Option<Library> {
    // SAFETY: running a library's initialisers is what loading the vendor's driver means; the path is one the user or the
    // vendor's installer chose.
    let opened = unsafe { open_library(path) };
    let (library, error) = match opened {
        Ok(library) => (Some(library), None),
        Err(error) => (None, Some(error.to_string())),
    };
    attempts.push(Attempt { name: name.to_owned(), path: Some(path.to_owned()), error });
    library
}

/// # Safety
/// As [`Library::new`]: the library's initialisers run.
#[cfg(unix)]
unsafe fn open_library(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix;
    // Global, so that the operator libraries resolve the runtime's names from it.
    // SAFETY: the caller's duty.
    unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL) }.map(Library::from)
}

/// # Safety
/// As [`Library::new`]: the library's initialisers run.
#[cfg(not(unix))]
unsafe fn open_library(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the caller's duty.
    unsafe { Library::new(path) }
}

fn table_of(libraries: Vec<(Group, Library)>) -> AclApi {
    let single = libraries.iter().all(|(group, _)| *group == Group::Ascendcl);
    let find = |function: AclFn| -> *const c_void {
        let own = libraries.iter().filter(|(group, _)| single || *group == function.group());
        for (_, library) in own {
            // SAFETY: the symbol is only turned into a pointer here, not called.
            if let Ok(symbol) = unsafe { library.get::<*const c_void>(function.name()) } {
                // SAFETY: the raw address of a symbol that was just found.
                let address = unsafe { symbol.into_raw() };
                return address.as_raw_ptr().cast_const();
            }
        }
        std::ptr::null()
    };
    // SAFETY: names and signatures are the vendor's, as listed in functions.rs; the libraries are leaked just below.
    let api = unsafe { AclApi::from_symbols(find) };
    libraries.into_iter().for_each(|(_, library)| std::mem::forget(library));
    api
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_lists_what_was_tried() {
        let error = AclApi::load(&[PathBuf::from("/nonexistent")]).unwrap_err();
        assert_eq!(error.group, Group::Ascendcl);
        let tried: Vec<_> = error.attempts.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(tried, ["libascendcl.so", "libacl_rt.so"]);
        assert!(error.to_string().contains("not in any of 1 folders"));
    }

    #[test]
    fn a_file_that_is_no_library_says_why() {
        let error = AclApi::load_single(Path::new(file!())).unwrap_err();
        assert!(error.attempts[0].error.is_some());
    }
}
