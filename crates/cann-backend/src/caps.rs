//! What one device can do: its SoC's row, and the functions its library has.
//!
//! The only place where chips differ. Plan functions read these fields; nothing asks for a chip by name elsewhere.

use std::sync::Arc;

use acl_sys::{AclApi, AclFn};

/// Families of chips that share rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Soc {
    /// Ascend910A, 910ProA, 910PremiumA.
    A910,
    /// Ascend910B: Atlas A2.
    A2,
    /// Ascend910_93: Atlas A3.
    A3,
    /// Ascend310P: Atlas inference.
    P310,
    /// Ascend310B: Orange Pi and the 200I/500 A2.
    B310,
    /// The embedded device under its own name.
    Host,
}

impl Soc {
    /// The family of a SoC name as `aclrtGetSocName` gives it; unknown names get the rules of the 910B.
    pub fn from_name(name: &str) -> Soc {
        let is = |prefix: &str| name.starts_with(prefix);
        if name == "Host" {
            Soc::Host
        } else if is("Ascend910A") || is("Ascend910ProA") || is("Ascend910PremiumA") {
            Soc::A910
        } else if is("Ascend910_93") {
            Soc::A3
        } else if is("Ascend310P") {
            Soc::P310
        } else if is("Ascend310B") {
            Soc::B310
        } else {
            Soc::A2
        }
    }
}

/// Capabilities of one device.
#[derive(Clone, Debug)]
pub struct DeviceCaps {
    pub api: Arc<AclApi>,
    pub soc: Soc,
    pub soc_name: String,
    pub bf16: bool,
    pub int4: bool,
    /// Products with quantised weights and one scale per group of 32.
    pub group_quant: bool,
    /// Such products also take and give f32, and have no limit of 65535 rows.
    pub group_quant_f32: bool,
    pub rotary: bool,
    pub fused_attention: bool,
    /// Fused attention also takes f32 and bf16 operands, a mask per head, strided operands and any head size.
    pub fused_attention_any: bool,
    pub max_pool: bool,
    pub capture: bool,
    pub peer_access: bool,
    /// Matrix products of f32 stay f32 (`cubeMathType` 0).
    pub f32_matmul: bool,
    /// Weights have a private format that products read, and it pays.
    pub weight_nz: bool,
    pub weight_nz_pays: bool,
    /// Operators tolerate shapes and types the vendor's documents exclude for reasons of hardware.
    pub relaxed: bool,
}

impl DeviceCaps {
    pub fn new(api: Arc<AclApi>, soc_name: &str) -> DeviceCaps {
        let soc = Soc::from_name(soc_name);
        let small = matches!(soc, Soc::P310 | Soc::B310);
        let host = soc == Soc::Host;
        let nz = [AclFn::aclnnTransMatmulWeight, AclFn::aclnnCalculateMatmulWeightSizeV2].iter().all(|f| api.has(*f));
        DeviceCaps {
            api,
            soc,
            soc_name: soc_name.to_owned(),
            bf16: !small && soc != Soc::A910,
            int4: !small && soc != Soc::A910,
            group_quant: !small && soc != Soc::A910,
            group_quant_f32: host,
            rotary: !small,
            fused_attention: !small && soc != Soc::A910,
            fused_attention_any: host,
            max_pool: !small,
            capture: !small,
            peer_access: !small,
            f32_matmul: !small && soc != Soc::A910,
            weight_nz: nz && soc != Soc::A910,
            weight_nz_pays: !host,
            relaxed: host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_by_name() {
        for (name, soc) in [
            ("Ascend910A", Soc::A910),
            ("Ascend910PremiumA", Soc::A910),
            ("Ascend910B3", Soc::A2),
            ("Ascend910_9391", Soc::A3),
            ("Ascend310P3", Soc::P310),
            ("Ascend310B4", Soc::B310),
            ("Host", Soc::Host),
            ("Ascend950", Soc::A2),
        ] {
            assert_eq!(Soc::from_name(name), soc, "{name}");
        }
    }
}
