//! Runs the targets on stable Rust: mutates inputs, keeps those that lead somewhere new, times every execution, and writes
//! an input that breaks a promise to a file.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cann_node_fuzz::{Outcome, Random, TARGETS, Target};

const USAGE: &str = "fuzz --target NAME [--runs N] [--seconds T] [--seed S] [--all] [--last FILE]
fuzz --target NAME --input FILE     one input again
fuzz --target NAME --seeds FOLDER   writes the seeds, for another fuzzer
fuzz --smoke [--seed S]             every target for a few seconds, as many executions each time

Targets: gguf_open, graph_prepare, tensor_ranges. Without a limit a target runs for 60 seconds. It ends with the first
failure; with --all it goes on, and keeps one input for each kind of failure. --last writes every input to FILE before it
is tried: for a failure that ends the process.";

/// An execution that takes longer is a failure, if it does so again.
const SLOW: Duration = Duration::from_secs(1);
/// One that takes this long is taken for one that never ends.
const HANG: Duration = Duration::from_secs(60);
const LARGEST_POOL: usize = 4096;
const MEMORY_EVERY: u64 = 64;

/// What threads panicked with since somebody looked.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The input at work and when it began, for the watchdog.
static AT_WORK: Mutex<Option<(&'static str, Instant, Vec<u8>)>> = Mutex::new(None);

#[derive(Default)]
struct Args {
    target: Option<String>,
    runs: Option<u64>,
    seconds: Option<u64>,
    seed: u64,
    input: Option<PathBuf>,
    seeds: Option<PathBuf>,
    smoke: bool,
    all: bool,
    last: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A panic on a worker thread, or one that a boundary caught, counts as well.
    std::panic::set_hook(Box::new(|info| lock(&PANICS).push(info.to_string())));
    std::thread::spawn(watch);
    match act(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args { seed: 1, ..Args::default() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--target" => args.target = Some(value()?),
            "--runs" => args.runs = Some(number(value()?)?),
            "--seconds" => args.seconds = Some(number(value()?)?),
            "--seed" => args.seed = number(value()?)?,
            "--input" => args.input = Some(value()?.into()),
            "--seeds" => args.seeds = Some(value()?.into()),
            "--last" => args.last = Some(value()?.into()),
            "--all" => args.all = true,
            "--smoke" => args.smoke = true,
            _ => return Err(format!("{word} is not known")),
        }
    }
    if args.smoke == args.target.is_some() { Err("a target or --smoke is needed".into()) } else { Ok(args) }
}

/// Whether nothing was found.
fn act(args: &Args) -> Result<bool, String> {
    if args.smoke {
        let results = TARGETS.iter().map(|target| fuzz(target, args, Some(target.smoke_runs), None));
        return results.collect::<Result<Vec<bool>, String>>().map(|all| all.into_iter().all(|fine| fine));
    }
    let name = args.target.as_deref().unwrap_or_default();
    let target = TARGETS.iter().find(|t| t.name == name).ok_or(format!("there is no target {name}\n\n{USAGE}"))?;
    if let Some(folder) = &args.seeds {
        std::fs::create_dir_all(folder).map_err(|e| at(folder, &e))?;
        for (i, seed) in (target.seeds)().iter().enumerate() {
            let path = folder.join(format!("seed-{i:03}"));
            std::fs::write(&path, seed).map_err(|e| at(&path, &e))?;
        }
        return Ok(true);
    }
    if let Some(path) = &args.input {
        let data = std::fs::read(path).map_err(|e| at(path, &e))?;
        let (result, took) = execute(target, &data);
        match &result {
            Ok(outcome) => println!("{name}: {outcome:?} in {took:?}"),
            Err(failure) => eprintln!("{name}: {failure}"),
        }
        return Ok(result.is_ok());
    }
    let limit = args.seconds.or(if args.runs.is_none() { Some(60) } else { None });
    fuzz(target, args, args.runs, limit.map(Duration::from_secs))
}

/// Runs a target until a limit is reached or, unless all failures are wanted, something is found.
fn fuzz(target: &Target, args: &Args, runs: Option<u64>, limit: Option<Duration>) -> Result<bool, String> {
    let (seed, all) = (args.seed, args.all);
    let mut pool = corpus(target)?;
    pool.extend((target.seeds)());
    let given = pool.len();
    let (mut random, mut seen) = (Random::new(seed), HashSet::new());
    let mut failures = HashSet::new();
    let (mut n, mut accepted, mut slowest) = (0u64, 0u64, Duration::ZERO);
    let mut largest = 0;
    // What is there from the first execution on, the device for one, is not an input's doing.
    let _ = execute(target, &pool[0]);
    let memory_before = Memory::peak();
    let begin = Instant::now();
    let more = |n: u64| (n as usize) < given || runs.is_none_or(|r| n < r) && limit.is_none_or(|l| begin.elapsed() < l);
    while more(n) {
        let first_time = (n as usize) < given;
        let data = if first_time { pool[n as usize].clone() } else { mutate(&pool, target.longest_input, &mut random) };
        if let Some(path) = &args.last {
            std::fs::write(path, &data).map_err(|e| at(path, &e))?;
        }
        let (mut result, mut took) = execute(target, &data);
        if result.is_ok() && took > SLOW {
            // Once may be the machine's fault.
            (result, took) = execute(target, &data);
            if took > SLOW {
                result = result.and(Err(format!("takes {took:?}, twice over")));
            }
        }
        (n, slowest, largest) = (n + 1, slowest.max(took), largest.max(data.len() as u64));
        let look = n.is_multiple_of(MEMORY_EVERY) || took > Duration::from_millis(5);
        if look && Memory::over(memory_before) > target.memory_limit_bytes + largest {
            result = result.and(Err(format!("{} bytes over the start", Memory::over(memory_before))));
        }
        match result {
            Ok(outcome) => {
                accepted += u64::from(outcome.accepted);
                if seen.insert(outcome.signature) && !first_time {
                    if pool.len() < LARGEST_POOL {
                        pool.push(data);
                    } else {
                        let at = given + random.below(LARGEST_POOL - given);
                        pool[at] = data;
                    }
                }
            }
            Err(failure) => {
                // The same rule broken with other numbers is no other kind.
                let kind: String = failure.chars().filter(|c| !c.is_ascii_digit() || !all).take(200).collect();
                if failures.insert(kind) {
                    eprintln!("{}: execution {n} of seed {seed}: {failure}", target.name);
                    keep(target.name, &data);
                }
                if !all {
                    return Ok(false);
                }
            }
        }
    }
    println!(
        "{}: {n} executions in {:.0} s, {accepted} accepted, {} ways, slowest {:.1} ms, memory {:.1} MiB over the start",
        target.name,
        begin.elapsed().as_secs_f64(),
        seen.len(),
        slowest.as_secs_f64() * 1e3,
        Memory::over(memory_before) as f64 / f64::from(1 << 20),
    );
    Ok(failures.is_empty())
}

/// One execution: what came of it, or what it broke.
fn execute(target: &Target, data: &[u8]) -> (Result<Outcome, String>, Duration) {
    let begin = Instant::now();
    *lock(&AT_WORK) = Some((target.name, begin, data.to_vec()));
    // A target keeps nothing between executions but the device, which has to stand this.
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
    let took = begin.elapsed();
    *lock(&AT_WORK) = None;
    let panics = std::mem::take(&mut *lock(&PANICS));
    let result = result.map_err(|_| ()).and_then(|outcome| if panics.is_empty() { Ok(outcome) } else { Err(()) });
    (result.map_err(|()| panics.join("\n")), took)
}

/// The inputs that are kept beside the targets: those that once found something.
fn corpus(target: &Target) -> Result<Vec<Vec<u8>>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).map_err(|e| at(path, &e))).collect()
}

/// One to eight changes to an input that is known.
fn mutate(pool: &[Vec<u8>], longest: usize, random: &mut Random) -> Vec<u8> {
    const BOUNDARIES: [u64; 16] = [
        0,
        1,
        2,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 32,
        1 << 53,
        i64::MAX as u64,
        1 << 63,
        u64::MAX,
    ];
    // Half of the time one of the latest finds.
    let from =
        if random.below(2) == 0 { pool.len() - 1 - random.below(pool.len().min(64)) } else { random.below(pool.len()) };
    let mut data = pool[from].clone();
    for _ in 0..=random.below(8) {
        let n = data.len();
        let at = random.below(n + 1);
        let most = 2 << random.below(6);
        let piece = 1 + random.below(most);
        let end = n.min(at + piece);
        match random.below(8) {
            0 if at < n => data[at] ^= 1 << random.below(8),
            1 if at < n => data[at] = random.number() as u8,
            2 if at < n => data[at] = data[at].wrapping_add(random.below(9) as u8).wrapping_sub(4),
            3 => {
                let width = [1, 2, 4, 8][random.below(4)];
                let value =
                    BOUNDARIES[random.below(BOUNDARIES.len())].wrapping_add(random.below(3) as u64).wrapping_sub(1);
                data[at..n.min(at + width)].copy_from_slice(&value.to_le_bytes()[..width.min(n - at)]);
            }
            4 => drop(data.drain(at..end)),
            5 => {
                let copy = data[at..end].to_vec();
                let to = random.below(n + 1);
                data.splice(to..to, copy);
            }
            6 => {
                let other = &pool[random.below(pool.len())];
                let start = random.below(other.len() + 1);
                let stop = other.len().min(start + piece * 4);
                data.splice(at..end, other[start..stop].iter().copied());
            }
            _ => {
                let fresh = random.bytes(piece);
                data.splice(at..at, fresh);
            }
        }
    }
    data.truncate(longest);
    data
}

/// Ends the process over an execution that does not end.
fn watch() {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let stuck = lock(&AT_WORK).as_ref().filter(|(_, begin, _)| begin.elapsed() > HANG).map(|w| (w.0, w.2.clone()));
        if let Some((target, data)) = stuck {
            eprintln!("{target}: no end after {HANG:?}");
            keep(target, &data);
            std::process::exit(1);
        }
    }
}

fn keep(target: &str, data: &[u8]) {
    let path = format!(
        "crash-{target}-{:x}",
        Random::new(data.iter().fold(0, |h, b| h * 31 % 0xffff_fffb + u64::from(*b))).number()
    );
    match std::fs::write(&path, data) {
        Ok(()) => {
            eprintln!("again: cargo run --release --manifest-path fuzz/Cargo.toml -- --target {target} --input {path}")
        }
        Err(error) => eprintln!("{path}: {error}; the input is {data:?}"),
    }
}

/// The most memory this process ever held, as Linux counts it; 0 elsewhere.
struct Memory;

impl Memory {
    fn peak() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).map_or(0, |kib| kib << 10)
    }

    fn over(before: u64) -> u64 {
        Memory::peak().saturating_sub(before)
    }
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
