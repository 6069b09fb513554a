//! Where CANN may be installed, and which version it is. Functions over a file system and variables: no library is opened here.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

use acl_sys::{Search, Toolkit};

/// Installations below a folder such as `/usr/local/Ascend`, newest layout first.
const INSTALLS: [&str; 4] = ["cann", "ascend-toolkit/latest", "latest", "nnrt/latest"];

/// What a search may look at.
pub(crate) struct Surroundings<V> {
    /// In place of `/`; what variables name is taken as it is.
    pub root: PathBuf,
    pub var: V,
}

/// This process's. `CANN_NODE_ROOT` is a file system that lies elsewhere.
pub(crate) fn surroundings() -> Surroundings<impl Fn(&str) -> Option<PathBuf>> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Surroundings { root: var("CANN_NODE_ROOT").unwrap_or_else(|| "/".into()), var }
}

impl<V: Fn(&str) -> Option<PathBuf>> Surroundings<V> {
    /// The toolkits of the variables, then the usual installations, then whatever the system's search path has.
    pub fn search(&self) -> Search {
        let bases = self.bases();
        let named = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].iter().filter_map(|name| (self.var)(name));
        let usual = bases.iter().flat_map(|base| INSTALLS.iter().map(move |install| base.join(install)));
        let mut toolkits: Vec<Toolkit> = Vec::new();
        for root in named.chain(usual).filter(|root| root.is_absolute()) {
            if toolkits.iter().all(|toolkit| toolkit.root != root) {
                let folders = vec![root.join("lib64"), root.join(format!("{ARCH}-linux/lib64")), root.clone()];
                toolkits.push(Toolkit { root, folders });
            }
        }
        let driver = bases.iter().map(|base| base.join("driver/lib64"));
        let needed = driver.flat_map(|lib64| [lib64.join("driver"), lib64.join("common"), lib64]).collect();
        // A file system that lies elsewhere is not the one the system's loader searches.
        Search { toolkits, needed, system: self.root == Path::new("/") }
    }

    /// Folders below which the vendor's installers put things.
    fn bases(&self) -> Vec<PathBuf> {
        let mut bases = vec![self.at("/usr/local/Ascend")];
        bases.extend((self.var)("HOME").map(|home| self.at(home.join("Ascend"))));
        let info = std::fs::read_to_string(self.at("/etc/ascend_install.info")).unwrap_or_default();
        bases.extend(info.lines().filter_map(|line| {
            let (key, path) = line.split_once('=')?;
            (key.trim().ends_with("_Install_Path_Param") && path.starts_with('/')).then(|| self.at(path.trim()))
        }));
        let mut seen = Vec::new();
        bases.retain(|base| {
            let new = !seen.contains(base);
            seen.push(base.clone());
            new
        });
        bases
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }
}

/// The toolkit that a library belongs to.
pub(crate) fn root_of(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?;
    let above = folder.strip_suffix("lib64").unwrap_or(folder);
    Some(above.strip_suffix(&format!("{ARCH}-linux")).unwrap_or(above).to_owned())
}

/// `Path::strip_prefix`, from the other end.
trait StripSuffix {
    fn strip_suffix(&self, name: &str) -> Option<&Path>;
}

impl StripSuffix for Path {
    fn strip_suffix(&self, name: &str) -> Option<&Path> {
        if self.ends_with(name) { self.parent() } else { None }
    }
}

/// The version that a toolkit's own files state.
pub(crate) fn version(root: &Path) -> Option<String> {
    let arch = format!("{ARCH}-linux");
    let files = [
        (root.join("version.cfg"), &["toolkit_running_version", "runtime_running_version"][..]),
        (root.join(&arch).join("ascend_toolkit_install.info"), &["version"][..]),
        (root.join(&arch).join("ascend_nnrt_install.info"), &["version"][..]),
        (root.join("runtime/version.info"), &["Version"][..]),
        (root.join("version.info"), &["Version", "version"][..]),
    ];
    files.iter().find_map(|(file, keys)| {
        let text = std::fs::read_to_string(file).ok()?;
        keys.iter().find_map(|key| {
            let value = text.lines().find_map(|line| line.split_once('=').filter(|(k, _)| k.trim() == *key))?.1;
            // "[7.6.0.1.220:8.0.0]" is the build, then the release.
            let value = value.trim().trim_matches(['[', ']', '"']);
            Some(value.rsplit(':').next().unwrap_or(value).to_owned()).filter(|value| !value.is_empty())
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Files laid out in a folder of their own, gone afterwards.
    struct Tree(PathBuf);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Tree {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let tree = std::env::temp_dir().join(format!("cann-node-toolkit-{}-{n}", std::process::id()));
            for (file, text) in files {
                let file = tree.join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
            Tree(tree)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn search(root: &Path, vars: &[(&str, &str)]) -> Search {
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| PathBuf::from(value));
        Surroundings { root: root.to_owned(), var }.search()
    }

    fn roots(search: &Search) -> Vec<&str> {
        search.toolkits.iter().map(|toolkit| toolkit.root.to_str().unwrap()).collect()
    }

    #[test]
    fn the_environment_comes_before_the_usual_places() {
        let vars =
            [("ASCEND_TOOLKIT_HOME", "/opt/b"), ("ASCEND_HOME_PATH", "/opt/a"), ("HOME", "/home/me"), ("X", "/x")];
        // A root without /etc/ascend_install.info.
        let tree = Tree::new(&[("etc/passwd", "")]);
        let found = search(&tree.0, &vars);
        let root = tree.0.to_str().unwrap();
        let usual = |base: &str| INSTALLS.map(|install| format!("{root}/{base}/{install}"));
        let expected: Vec<String> = ["/opt/a", "/opt/b"]
            .map(String::from)
            .into_iter()
            .chain(usual("usr/local/Ascend"))
            .chain(usual("home/me/Ascend"))
            .collect();
        assert_eq!(roots(&found), expected);
        let arch = format!("/opt/a/{ARCH}-linux/lib64");
        assert_eq!(found.toolkits[0].folders, ["/opt/a/lib64", &arch, "/opt/a"].map(PathBuf::from));
        assert!(!found.system);
        let driver = ["driver", "common", "."].map(|f| tree.0.join("usr/local/Ascend/driver/lib64").join(f));
        assert_eq!(found.needed[..2], driver[..2]);
        assert!(found.needed[2].ends_with("driver/lib64"));
    }

    #[test]
    fn one_toolkit_is_one_place_and_a_relative_path_is_none() {
        let vars = [("ASCEND_HOME_PATH", "/opt/a"), ("ASCEND_TOOLKIT_HOME", "/opt/a")];
        let tree = Tree::new(&[("etc/passwd", "")]);
        assert_eq!(roots(&search(&tree.0, &vars)).iter().filter(|root| **root == "/opt/a").count(), 1);
        let found = search(&tree.0, &[("ASCEND_HOME_PATH", "latest")]);
        assert_eq!(found.toolkits.len(), INSTALLS.len());
    }

    #[test]
    fn the_installers_own_note_says_where() {
        let note = "UserName=HwHiAiUser\nDriver_Install_Path_Param=/data/Ascend\nDriver_Install_Type=full\n";
        let tree = Tree::new(&[("etc/ascend_install.info", note)]);
        let found = search(&tree.0, &[]);
        let own = tree.0.join("data/Ascend/cann");
        assert!(found.toolkits.iter().any(|toolkit| toolkit.root == own));
        assert!(found.needed.contains(&tree.0.join("data/Ascend/driver/lib64/common")));
    }

    #[test]
    fn on_the_machine_itself_the_systems_path_is_asked_too() {
        assert!(search(Path::new("/"), &[]).system);
    }

    #[test]
    fn versions_of_each_layout() {
        let (cfg, toolkit) = ("cann/version.cfg", format!("cann/{ARCH}-linux/ascend_toolkit_install.info"));
        let old = "# version: 1.0\nruntime_running_version=[7.6.0.1.219:8.0.RC1]\ntoolkit_running_version=[7.6.0.1.220:8.0.0]\n";
        for (file, text, expected) in [
            (cfg, old, Some("8.0.0")),
            (cfg, "runtime_running_version=[1.83:CANN-1.83]", Some("CANN-1.83")),
            (&toolkit, "package_name=Ascend-cann-toolkit\nversion=8.5.0\narch=x86_64\n", Some("8.5.0")),
            ("cann/runtime/version.info", "Version=7.3.0.1.231\n", Some("7.3.0.1.231")),
            (cfg, "# version: 1.0\n", None),
        ] {
            let tree = Tree::new(&[(file, text)]);
            assert_eq!(version(&tree.0.join("cann")).as_deref(), expected, "{file}");
        }
    }

    #[test]
    fn a_library_tells_its_toolkit() {
        for library in ["/a/cann/lib64/libx.so", &format!("/a/cann/{ARCH}-linux/lib64/libx.so"), "/a/cann/libx.so"] {
            assert_eq!(root_of(Path::new(library)).unwrap(), Path::new("/a/cann"), "{library}");
        }
    }
}
