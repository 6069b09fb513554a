//! docs/ops.md is printed from the op table: this test prints it again and compares. `CANN_NODE_WRITE_DOCS=1` writes it.
//!
//! Which ACL calls an operator makes, and which chips refuse it, is found by lowering every node of the golden cases for each
//! family of chips; nothing is written down twice.

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use cann_backend::caps::DeviceCaps;
use cann_backend::graph::NodeId;
use cann_backend::{ops, plan};

const CHIPS: [(&str, &str); 6] = [
    ("Host", "Host"),
    ("A2", "Ascend910B3"),
    ("A3", "Ascend910_9391"),
    ("910A", "Ascend910A"),
    ("310P", "Ascend310P3"),
    ("310B", "Ascend310B4"),
];

#[derive(Default)]
struct Facts {
    calls: BTreeSet<&'static str>,
    /// Reason → chips that give it.
    refused: BTreeMap<String, BTreeSet<&'static str>>,
}

fn facts() -> BTreeMap<&'static str, Facts> {
    let api = Arc::new(acl_host::api());
    let chips = CHIPS.map(|(short, name)| (short, DeviceCaps::new(api.clone(), name)));
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../__test__/golden");
    let mut facts: BTreeMap<&'static str, Facts> = BTreeMap::new();
    for case in cases::load(&own) {
        let graph = cases::build(&case).unwrap_or_else(|e| panic!("{}: {e}", case["name"]));
        for (i, node) in graph.nodes().iter().enumerate() {
            let entry = facts.entry(node.op.name).or_default();
            for (chip, caps) in &chips {
                match plan::calls(&graph, NodeId(i as u32), caps) {
                    Ok(calls) => entry.calls.extend(calls),
                    Err(reason) => {
                        let reason = reason.replace(&caps.soc_name, "this chip");
                        entry.refused.entry(reason).or_default().insert(chip);
                    }
                }
            }
        }
    }
    facts
}

fn print() -> String {
    let cell = |s: &str| s.replace('|', "\\|");
    let facts = facts();
    let mut rows: Vec<&ops::OpDef> = ops::all().collect();
    rows.sort_by_key(|def| def.name);
    let mut text = String::from(
        "# Operators\n\n\
         Printed from the op table by `CANN_NODE_WRITE_DOCS=1 cargo test -p cann-backend --test docs`; do not edit.\n\n\
         Names, parameters and shapes are ggml's: `ne[0]` is the fastest dimension. In JavaScript every row is\n\
         `graph.op(NAME, sources, parameters)` and a method in camel case. The calls and refusals are those of the golden cases in\n\
         `__test__/golden`, lowered for each family of chips: A2 (910B), A3 (910_93), 910A, 310P, 310B, and Host, the embedded device. A\n\
         refused operator rejects `prepare()` with `ERR_UNSUPPORTED_OP` before anything is launched; `backend.explainOp(node)` gives the\n\
         same reason beforehand.\n\n\
         | op | sources | parameters | types | meaning | ACL calls |\n|---|---|---|---|---|---|\n",
    );
    for def in &rows {
        let calls =
            facts.get(def.name).map(|f| f.calls.iter().copied().collect::<Vec<_>>().join(" ")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            def.name,
            cell(&def.src.join(", ")),
            cell(&def.params_text()),
            cell(def.types),
            cell(def.doc),
            if calls.is_empty() { "none" } else { &calls }
        );
    }
    text.push_str("\n## Refused\n\n| op | chips | reason |\n|---|---|---|\n");
    for def in &rows {
        for (reason, chips) in facts.get(def.name).into_iter().flat_map(|f| &f.refused) {
            let chips = if chips.len() == CHIPS.len() {
                "all".to_owned()
            } else {
                chips.iter().copied().collect::<Vec<_>>().join(" ")
            };
            let _ = writeln!(text, "| `{}` | {chips} | {} |", def.name, cell(reason));
        }
    }
    text
}

#[test]
fn ops_md_is_fresh() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/ops.md");
    let printed = print();
    if std::env::var_os("CANN_NODE_WRITE_DOCS").is_some() {
        std::fs::write(&path, &printed).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == printed, "docs/ops.md is stale: run this test with CANN_NODE_WRITE_DOCS=1");
}

#[test]
fn every_operator_has_a_golden_case() {
    let seen = facts();
    let missing: Vec<_> = ops::all().map(|d| d.name).filter(|n| *n != "NONE" && !seen.contains_key(n)).collect();
    assert!(missing.is_empty(), "no golden case in the repository for {missing:?}");
}
