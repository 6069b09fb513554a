//! dlopen as one source of a table. Where to look is the caller's business ([`Search`]); the libraries stay open for the life of
//! the process, because function pointers and device threads of theirs outlive any owner we could name.

use std::collections::HashSet;
use std::error::Error;
use std::ffi::c_void;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::table::{AclApi, AclFn, Group};

/// A set of files that is one library group, in the order to open.
type Names = &'static [&'static str];

/// File names of each group across versions 7 to 9, groups in dependency order, sets in order of preference: the first set
/// that opens is the group. `libopapi.so` and the split operator libraries are never mixed.
const CANDIDATES: &[(Group, &[Names])] = &[
    (Group::Ascendcl, &[&["libascendcl.so"], &["libacl_rt.so"]]),
    (Group::Nnopbase, &[&["libnnopbase.so"]]),
    (
        Group::Opapi,
        &[
            &["libopapi.so"],
            &["libopapi_math.so", "libopapi_nn.so", "libopapi_cv.so", "libopapi_transformer.so", "libopapi_legacy.so"],
        ],
    ),
];

/// One installation of the toolkit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolkit {
    pub root: PathBuf,
    /// Folders that may hold its libraries.
    pub folders: Vec<PathBuf>,
}

/// Where to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Best first.
    pub toolkits: Vec<Toolkit>,
    /// Further folders for what the libraries need: the driver's.
    pub needed: Vec<PathBuf>,
    /// Whether to ask the system's own search path by bare name, last.
    pub system: bool,
}

impl Search {
    /// One folder and nothing else.
    pub fn folder(folder: impl Into<PathBuf>) -> Search {
        let root: PathBuf = folder.into();
        Search { toolkits: vec![Toolkit { folders: vec![root.clone()], root }], ..Search::default() }
    }
}

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
    /// The runtime library's file.
    pub runtime: PathBuf,
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
impl Error for LoadError {}

impl AclApi {
    /// Opens the vendor's libraries by absolute path, in dependency order, from the first toolkit that has a file for each group;
    /// without any, by bare name from the system's search path. A toolkit whose runtime does not open is passed over; once
    /// something is open no other toolkit is tried, because two of them in one process would be worse than none.
    pub fn load(search: &Search) -> Result<Loaded, LoadError> {
        let mut opener = Opener::default();
        let mut failed = None;
        let mut seen = false;
        for toolkit in &search.toolkits {
            let files = match files_of(toolkit) {
                Ok(files) => files,
                Err(None) => continue,
                Err(Some((group, incomplete))) => {
                    (seen, failed) = (true, failed.or(Some(group)));
                    opener.attempts.push(incomplete);
                    continue;
                }
            };
            seen = true;
            opener.near = toolkit.folders.iter().chain(&search.needed).cloned().collect();
            match opener.groups(&files) {
                Ok(runtime) => return Ok(opener.loaded(runtime)),
                Err(group) if opener.libraries.is_empty() => failed = failed.or(Some(group)),
                Err(group) => return Err(opener.failed(group)),
            }
        }
        if !seen && !search.toolkits.is_empty() {
            let roots: Vec<String> = search.toolkits.iter().map(|t| t.root.display().to_string()).collect();
            opener.attempts.push(Attempt {
                name: CANDIDATES[0].1[0][0].to_owned(),
                path: None,
                error: Some(format!("not in {}", roots.join(", "))),
            });
        }
        if search.system {
            opener.near.clone_from(&search.needed);
            let names: Vec<Files> = CANDIDATES
                .iter()
                .map(|(group, sets)| (*group, sets.iter().map(|set| set.iter().map(PathBuf::from).collect()).collect()))
                .collect();
            match opener.groups(&names) {
                Ok(runtime) => return Ok(opener.loaded(runtime)),
                Err(group) if opener.libraries.is_empty() => failed = failed.or(Some(group)),
                Err(group) => return Err(opener.failed(group)),
            }
        }
        Err(LoadError { group: failed.unwrap_or(CANDIDATES[0].0), attempts: opener.attempts })
    }

    /// A folder with the vendor's files, or one file that has every name.
    pub fn load_path(path: &Path) -> Result<Loaded, LoadError> {
        if path.is_dir() { AclApi::load(&Search::folder(path)) } else { AclApi::load_single(path) }
    }

    /// Opens one library that has every name: a stand-in, or an interposer.
    pub fn load_single(path: &Path) -> Result<Loaded, LoadError> {
        let mut opener = Opener::default();
        match opener.open(path) {
            Some(library) => {
                opener.libraries.push((Group::Ascendcl, library));
                Ok(opener.loaded(path.to_owned()))
            }
            None => Err(LoadError { group: Group::Ascendcl, attempts: opener.attempts }),
        }
    }
}

/// A group's sets of files, best first.
type Files = (Group, Vec<Vec<PathBuf>>);

/// The files of a toolkit. `Err(None)` where there is no runtime library at all; else the group that has no file, and a sentence.
fn files_of(toolkit: &Toolkit) -> Result<Vec<Files>, Option<(Group, Attempt)>> {
    let mut files: Vec<Files> = Vec::new();
    for (group, sets) in CANDIDATES {
        let find = |name: &&str| find_in(&toolkit.folders, name);
        let there: Vec<Vec<PathBuf>> = sets.iter().map(|set| set.iter().filter_map(find).collect()).collect();
        let there: Vec<Vec<PathBuf>> = there.into_iter().filter(|set| !set.is_empty()).collect();
        if there.is_empty() {
            let Some((_, runtime)) = files.first() else { return Err(None) };
            let error = format!("not beside {}: the installation is incomplete", runtime[0][0].display());
            return Err(Some((*group, Attempt { name: sets[0][0].to_owned(), path: None, error: Some(error) })));
        }
        files.push((*group, there));
    }
    Ok(files)
}

fn find_in(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|path| path.exists())
}

#[derive(Default)]
struct Opener {
    /// Where a library that another needs may lie.
    near: Vec<PathBuf>,
    /// Names that were looked for there: each once.
    needed: HashSet<String>,
    libraries: Vec<(Group, Library)>,
    attempts: Vec<Attempt>,
}

impl Opener {
    /// Opens each group; answers the path of the runtime library, or the group of which nothing opens.
    fn groups(&mut self, groups: &[Files]) -> Result<PathBuf, Group> {
        let mut runtime = None;
        for (group, sets) in groups {
            let opened = sets.iter().any(|set| {
                let before = self.libraries.len();
                for path in set {
                    if let Some(library) = self.open(path) {
                        runtime.get_or_insert_with(|| mapped(path));
                        self.libraries.push((*group, library));
                    }
                }
                self.libraries.len() > before
            });
            if !opened {
                return Err(*group);
            }
        }
        runtime.ok_or(Group::Ascendcl)
    }

    /// Opens a library. Where the system does not find one that it needs, that one is opened first, if it lies near: programs
    /// that are not started from a shell have none of the variables that would say where.
    fn open(&mut self, path: &Path) -> Option<Library> {
        loop {
            // SAFETY: running a library's initialisers is what loading the vendor's driver means; the path is one the user or
            // the vendor's installer chose.
            let error = match unsafe { open_library(path) } {
                Ok(library) => {
                    self.attempts.push(attempt(path, None));
                    return Some(library);
                }
                // The error itself says only that something failed; the system's words are its source.
                Err(error) => error.source().map_or_else(|| error.to_string(), |source| source.to_string()),
            };
            let near = missing_name(&error, path)
                .filter(|name| self.needed.insert((*name).to_owned()))
                .and_then(|name| find_in(&self.near, name));
            // Stays open, as what needs it does.
            match near.and_then(|path| self.open(&path)) {
                Some(library) => std::mem::forget(library),
                None => {
                    self.attempts.push(attempt(path, Some(error)));
                    return None;
                }
            }
        }
    }

    fn loaded(self, runtime: PathBuf) -> Loaded {
        Loaded { api: table_of(self.libraries), runtime, attempts: self.attempts }
    }

    /// What was opened stays open: its threads may run already.
    fn failed(self, group: Group) -> LoadError {
        self.libraries.into_iter().for_each(std::mem::forget);
        LoadError { group, attempts: self.attempts }
    }
}

fn attempt(path: &Path, error: Option<String>) -> Attempt {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    // A bare name that the system did not find is nowhere.
    let path = (path.components().count() > 1 || error.is_none()).then(|| mapped(path));
    Attempt { name, path, error }
}

/// The library's name in "libx.so: cannot open shared object file", where that is not the one that was asked for.
fn missing_name<'a>(error: &'a str, path: &Path) -> Option<&'a str> {
    let (name, rest) = error.split_once(": ")?;
    let library = name.ends_with(".so") || name.contains(".so.");
    (library && !name.contains('/') && rest.contains("open shared object") && Some(name) != path.to_str())
        .then_some(name)
}

/// The file behind a bare name that the system found, where it tells.
fn mapped(path: &Path) -> PathBuf {
    let bare = path.to_str().filter(|name| !name.contains('/'));
    let maps = bare.and_then(|_| std::fs::read_to_string("/proc/self/maps").ok()).unwrap_or_default();
    let file = maps.lines().filter_map(|line| line.split_once('/')).map(|(_, file)| Path::new("/").join(file));
    let found = bare.and_then(|name| {
        file.into_iter().find(|file| file.file_name().is_some_and(|f| f.to_string_lossy().starts_with(name)))
    });
    found.unwrap_or_else(|| path.to_owned())
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A folder with empty files of these names, gone afterwards.
    struct Folder(PathBuf);

    impl Folder {
        fn new(names: &[&str]) -> Folder {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder = std::env::temp_dir().join(format!("acl-sys-{}-{n}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            names.iter().for_each(|name| std::fs::write(folder.join(name), "").unwrap());
            Folder(folder)
        }

        fn toolkit(&self) -> Toolkit {
            Toolkit { root: self.0.clone(), folders: vec![self.0.clone()] }
        }

        /// The sets of files, by name, in the order in which they would be opened.
        fn sets(&self) -> Vec<Vec<Vec<String>>> {
            let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            let files = files_of(&self.toolkit()).unwrap();
            files.iter().map(|(_, sets)| sets.iter().map(|set| set.iter().map(name).collect()).collect()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_split_operator_libraries_stand_in_for_the_one() {
        let split = ["libopapi_math.so", "libopapi_nn.so", "libopapi_cv.so", "libopapi_transformer.so"];
        let new = Folder::new(&[&["libacl_rt.so", "libnnopbase.so", "libcust_opapi.so"], &split[..]].concat());
        assert_eq!(new.sets(), [vec![vec!["libacl_rt.so"]], vec![vec!["libnnopbase.so"]], vec![split.to_vec()]]);

        // Where both are, the one is the first set, and the others are only for when it does not open.
        let both = Folder::new(&[&["libascendcl.so", "libnnopbase.so", "libopapi.so"], &split[..]].concat());
        assert_eq!(both.sets()[2], [vec!["libopapi.so"], split.to_vec()]);

        let old = Folder::new(&["libascendcl.so", "libacl_rt.so", "libnnopbase.so", "libopapi.so"]);
        assert_eq!(old.sets()[0], [["libascendcl.so"], ["libacl_rt.so"]]);
    }

    #[test]
    fn an_incomplete_toolkit_says_what_it_lacks_and_is_passed_over() {
        let empty = Folder::new(&[]);
        assert_eq!(files_of(&empty.toolkit()), Err(None));
        let partial = Folder::new(&["libascendcl.so", "libnnopbase.so"]);
        let search = Search { toolkits: vec![empty.toolkit(), partial.toolkit()], needed: Vec::new(), system: false };
        let error = AclApi::load(&search).unwrap_err();
        assert_eq!((error.group, error.attempts.len()), (Group::Opapi, 1));
        assert_eq!(error.attempts[0].name, "libopapi.so");
        assert!(error.attempts[0].error.as_ref().unwrap().contains("the installation is incomplete"));
    }

    #[test]
    fn a_missing_library_lists_where_it_was_looked_for() {
        let error = AclApi::load(&Search::folder("/nonexistent")).unwrap_err();
        assert_eq!(error.group, Group::Ascendcl);
        assert_eq!(error.attempts.len(), 1);
        assert!(error.to_string().contains("libascendcl.so: not in /nonexistent"));
    }

    #[test]
    fn a_broken_runtime_gives_way_to_the_next_toolkit() {
        let names = ["libascendcl.so", "libnnopbase.so", "libopapi.so"];
        let (one, two) = (Folder::new(&names), Folder::new(&names));
        let toolkits = vec![one.toolkit(), two.toolkit()];
        let error = AclApi::load(&Search { toolkits, ..Search::default() }).unwrap_err();
        let paths: Vec<_> = error.attempts.iter().map(|a| a.path.clone().unwrap()).collect();
        assert_eq!(paths, [one.0.join(names[0]), two.0.join(names[0])]);
        assert!(error.attempts.iter().all(|a| a.error.is_some()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_systems_path_is_asked_last_and_by_name() {
        let error = AclApi::load(&Search { system: true, ..Search::folder("/nonexistent") }).unwrap_err();
        let tried: Vec<_> = error.attempts.iter().map(|a| (a.name.as_str(), a.path.is_some())).collect();
        assert_eq!(tried, [("libascendcl.so", false), ("libascendcl.so", false), ("libacl_rt.so", false)]);
        assert!(error.attempts[1].error.as_ref().unwrap().contains("cannot open shared object file"));
    }

    #[test]
    fn the_name_of_what_is_missing() {
        let asked = Path::new("/a/libascendcl.so");
        let missing = "libascend_hal.so: cannot open shared object file: No such file or directory";
        assert_eq!(missing_name(missing, asked), Some("libascend_hal.so"));
        assert_eq!(missing_name("libc_sec.so.1: cannot open shared object file: x", asked), Some("libc_sec.so.1"));
        assert_eq!(missing_name("/a/libascendcl.so: cannot open shared object file: No such file", asked), None);
        assert_eq!(
            missing_name("libascendcl.so: cannot open shared object file: x", Path::new("libascendcl.so")),
            None
        );
        assert_eq!(missing_name("/a/libascendcl.so: file too short", asked), None);
        assert_eq!(missing_name("libx.so: undefined symbol: y", asked), None);
    }

    #[test]
    fn a_file_that_is_no_library_says_why() {
        let folder = Folder::new(&["libascendcl.so"]);
        let file = folder.0.join("libascendcl.so");
        let error = AclApi::load_path(&file).unwrap_err();
        let text = error.attempts[0].error.clone().unwrap();
        assert!(!cfg!(target_os = "linux") || text == format!("{}: file too short", file.display()), "{text}");
    }
}
