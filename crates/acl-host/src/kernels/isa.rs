//! Which instruction set the kernels use: found once at run time, so that one binary serves every processor of an
//! architecture. `CANN_NODE_ISA` lowers the choice for tests and bug reports; it never raises it.

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
use std::sync::OnceLock;

/// An instruction set some kernel table is written for, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    Scalar,
    /// x86-64 with AVX2, FMA and F16C (one level: every processor with the first has the others).
    Avx2,
    /// What every AArch64 processor has.
    Neon,
    /// NEON and the instruction that multiplies and adds four bytes.
    Dotprod,
}

/// What `CANN_NODE_ISA` led to.
struct Choice {
    isa: Isa,
    ignored: Option<String>,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

impl Isa {
    /// What this processor can run, weakest first; `Scalar` is always there.
    pub fn available() -> &'static [Isa] {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
            return &[Isa::Scalar, Isa::Avx2];
        }
        #[cfg(target_arch = "aarch64")]
        if is_aarch64_feature_detected!("neon") {
            let all = &[Isa::Scalar, Isa::Neon, Isa::Dotprod];
            return if is_aarch64_feature_detected!("dotprod") { all } else { &all[..2] };
        }
        &[Isa::Scalar]
    }

    /// Whether this processor can run `self`.
    pub fn is_available(self) -> bool {
        Isa::available().contains(&self)
    }

    /// The set in use: the strongest available one, or a weaker one named by `CANN_NODE_ISA`. Fixed at the first call.
    pub fn current() -> Isa {
        choice().isa
    }

    /// The value of `CANN_NODE_ISA` when it names nothing this processor can run and was therefore ignored.
    pub fn ignored_request() -> Option<&'static str> {
        choice().ignored.as_deref()
    }

    /// The name used in `CANN_NODE_ISA` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Neon => "neon",
            Isa::Dotprod => "dotprod",
        }
    }
}

fn choice() -> &'static Choice {
    CHOICE.get_or_init(|| choose(std::env::var("CANN_NODE_ISA").ok(), Isa::available()))
}

fn choose(request: Option<String>, available: &[Isa]) -> Choice {
    let best = available.last().copied().unwrap_or(Isa::Scalar);
    match request.filter(|r| !r.is_empty()) {
        None => Choice { isa: best, ignored: None },
        Some(r) => match available.iter().find(|isa| r.eq_ignore_ascii_case(isa.name())) {
            Some(&isa) => Choice { isa, ignored: None },
            None => Choice { isa: best, ignored: Some(r) },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lowers_but_never_raises() {
        let both = [Isa::Scalar, Isa::Avx2];
        assert_eq!(choose(None, &both).isa, Isa::Avx2);
        assert_eq!(choose(Some("scalar".into()), &both).isa, Isa::Scalar);
        assert_eq!(choose(Some("AVX2".into()), &both).isa, Isa::Avx2);
        let c = choose(Some("avx2".into()), &[Isa::Scalar]);
        assert_eq!((c.isa, c.ignored.as_deref()), (Isa::Scalar, Some("avx2")));
        let c = choose(Some("sse9".into()), &both);
        assert_eq!((c.isa, c.ignored.as_deref()), (Isa::Avx2, Some("sse9")));
        assert!(choose(Some(String::new()), &both).ignored.is_none());
    }

    /// Where a run promises sets, as CI does for its machines, a test that would skip one fails.
    #[test]
    fn promised_sets_are_there() {
        let promised = std::env::var("CANN_NODE_TEST_ISAS").unwrap_or_default();
        for name in promised.split(',').filter(|name| !name.is_empty()) {
            assert!(Isa::available().iter().any(|isa| isa.name() == name), "this processor does not have {name}");
        }
    }
}
