//! tracing events to JavaScript listeners, and to stderr when `CANN_NODE_LOG` asks for it.
//!
//! One subscriber for the process; one sink per environment, so a second worker does not take another's log. A sink's queue
//! is bounded: what does not fit is counted, and the next record that fits carries the count. Nothing is kept alive by a
//! listener, and nothing is formatted when nobody listens. Absent: spans.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use cann_backend::error::Error;
use napi::bindgen_prelude::{Either3, Function, Unknown};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Result, Status};
use napi_derive::napi;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Subscriber};

use crate::error::OrJs;
use crate::state::State;

const QUEUE_RECORDS: usize = 1024;

type FieldValue = Either3<f64, bool, String>;
type Callback = ThreadsafeFunction<LogRecord, Unknown<'static>, LogRecord, Status, false, true, QUEUE_RECORDS>;

/// One event.
#[napi(object, object_from_js = false)]
#[derive(Clone)]
pub struct LogRecord {
    pub level: &'static str,
    pub target: String,
    pub message: String,
    #[napi(ts_type = "Record<string, number | boolean | string>")]
    pub fields: HashMap<String, FieldValue>,
}

struct Sink {
    id: u64,
    level: LevelFilter,
    callback: Callback,
    dropped: AtomicU64,
}

static SINKS: Mutex<Vec<Sink>> = Mutex::new(Vec::new());
static NEXT_SINK: AtomicU64 = AtomicU64::new(1);
/// The most verbose level anybody wants, as a number of `rank`.
static MOST: AtomicU8 = AtomicU8::new(0);
/// The level printed to stderr.
static STDERR: AtomicU8 = AtomicU8::new(0);
static INSTALL: Once = Once::new();

/// Sends records of `level` and worse to `listener`; null stops. One listener per environment: the facade spreads them.
#[napi(catch_unwind)]
pub fn set_log_listener(
    env: Env,
    level: Option<String>,
    #[napi(ts_arg_type = "(record: LogRecord) => void")] listener: Option<Function<LogRecord, Unknown<'static>>>,
) -> Result<()> {
    let Some(state) = State::of(&env) else { return Ok(()) };
    let wanted = match level.as_deref() {
        Some(name) => parse(name)
            .ok_or_else(|| {
                Error::invalid("level", format!("one of error, warn, info, debug, trace (but received '{name}')"))
            })
            .or_js(&env)?,
        None => LevelFilter::OFF,
    };
    remove_sink(state.log_sink);
    if let Some(listener) = listener {
        let callback = listener
            .build_threadsafe_function::<LogRecord>()
            .weak::<true>()
            .max_queue_size::<QUEUE_RECORDS>()
            .build()?;
        lock().push(Sink { id: state.log_sink, level: wanted, callback, dropped: AtomicU64::new(0) });
    }
    refresh();
    Ok(())
}

/// A number for an environment's sink; installs the subscriber for the first one.
pub(crate) fn new_sink_id() -> u64 {
    INSTALL.call_once(|| {
        if let Some(level) = std::env::var("CANN_NODE_LOG").ok().as_deref().and_then(parse) {
            STDERR.store(rank(level), Ordering::Relaxed);
            MOST.store(rank(level), Ordering::Relaxed);
        }
        // Only another subscriber in this very library could have come first, and there is none.
        let _ = tracing::subscriber::set_global_default(Fan);
    });
    NEXT_SINK.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn remove_sink(id: u64) {
    // Dropped after the lock is released: releasing a callback calls into Node.
    let gone: Vec<Sink> = {
        let mut sinks = lock();
        let (gone, kept) = std::mem::take(&mut *sinks).into_iter().partition(|sink| sink.id == id);
        *sinks = kept;
        gone
    };
    if !gone.is_empty() {
        drop(gone);
        refresh();
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Sink>> {
    SINKS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn refresh() {
    let most = lock().iter().map(|sink| rank(sink.level)).max().unwrap_or(0);
    MOST.store(most.max(STDERR.load(Ordering::Relaxed)), Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

fn parse(name: &str) -> Option<LevelFilter> {
    match name {
        "error" => Some(LevelFilter::ERROR),
        "warn" => Some(LevelFilter::WARN),
        "info" => Some(LevelFilter::INFO),
        "debug" => Some(LevelFilter::DEBUG),
        "trace" => Some(LevelFilter::TRACE),
        _ => None,
    }
}

fn rank(level: LevelFilter) -> u8 {
    match level.into_level() {
        None => 0,
        Some(Level::ERROR) => 1,
        Some(Level::WARN) => 2,
        Some(Level::INFO) => 3,
        Some(Level::DEBUG) => 4,
        Some(Level::TRACE) => 5,
    }
}

fn most() -> LevelFilter {
    [LevelFilter::OFF, LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE]
        [usize::from(MOST.load(Ordering::Relaxed).min(5))]
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Spreads events over the sinks.
struct Fan;

impl Subscriber for Fan {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= most()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(most())
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let level = *metadata.level();
        let mut collected = Collect::default();
        event.record(&mut collected);
        let record = LogRecord {
            level: level_name(level),
            target: metadata.target().to_owned(),
            message: collected.message,
            fields: collected.fields,
        };
        if rank(LevelFilter::from_level(level)) <= STDERR.load(Ordering::Relaxed) {
            print(&record);
        }
        for sink in lock().iter().filter(|sink| level <= sink.level) {
            let mut record = record.clone();
            let dropped = sink.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                record.fields.insert("droppedRecords".to_owned(), Either3::A(dropped as f64));
            }
            if sink.callback.call(record, ThreadsafeFunctionCallMode::NonBlocking) != Status::Ok {
                sink.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
            }
        }
    }

    // Spans are not enabled, so none is ever made.
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

fn print(record: &LogRecord) {
    let mut line = format!("cann-node {} {}: {}", record.level, record.target, record.message);
    for (name, value) in &record.fields {
        // Writing to a String cannot fail.
        let _ = match value {
            Either3::A(number) => write!(line, " {name}={number}"),
            Either3::B(flag) => write!(line, " {name}={flag}"),
            Either3::C(text) => write!(line, " {name}={text}"),
        };
    }
    // Not eprintln, which panics where nobody reads stderr any more.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[derive(Default)]
struct Collect {
    message: String,
    fields: HashMap<String, FieldValue>,
}

impl Collect {
    fn put(&mut self, field: &Field, value: FieldValue) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for Collect {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Either3::A(value));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Either3::A(value as f64));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Either3::A(value as f64));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Either3::B(value));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            self.put(field, Either3::C(value.to_owned()));
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
