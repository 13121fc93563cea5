//! Ends of rules that lead elsewhere: to another chain, or to a process.

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, Immediate, Register, Verdict, VerdictAttribute,
};

use super::{
    expression::Expression,
    flow::{number, other},
};

/// `NFTA_QUEUE_NUM`.
const QUEUE_NUMBER: u16 = 1;
/// `NFTA_QUEUE_TOTAL`.
const QUEUE_TOTAL: u16 = 2;
/// `NFTA_TARGET_NAME`, `NFTA_TARGET_REV`, `NFTA_TARGET_INFO`.
pub(super) const TARGET_NAME: u16 = 1;
pub(super) const TARGET_REVISION: u16 = 2;
pub(super) const TARGET_INFO: u16 = 3;
/// The revision whose information is `struct xt_NFQ_info_v3`.
const REVISION: u32 = 3;

/// Means to queue packets for a process (NFQUEUE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueBy {
    /// The expression of nftables (`nft_queue`).
    Expression,
    /// The target of iptables (`xt_NFQUEUE`, by `nft_compat`), for kernels without the other.
    Target,
}

/// Hands the packet to the process that listens at a queue, and drops it if none does or the queue is full.
#[must_use]
pub fn queue(by: QueueBy, queue: u16) -> Expression {
    match by {
        QueueBy::Expression => {
            let field = |kind, value: u16| DefaultNla::new(kind, value.to_be_bytes().to_vec());
            other("queue", vec![field(QUEUE_NUMBER, queue), field(QUEUE_TOTAL, 1)])
        }
        QueueBy::Target => {
            // Number, how many, flags, padding.
            let info = [queue, 1, 0, 0].map(u16::to_ne_bytes).concat();
            other(
                "target",
                vec![
                    DefaultNla::new(TARGET_NAME, b"NFQUEUE\0".to_vec()),
                    number(TARGET_REVISION, REVISION),
                    DefaultNla::new(TARGET_INFO, info),
                ],
            )
        }
    }
}

/// Goes through a chain, and on here if that decides nothing.
#[must_use]
pub fn jump(chain: &str) -> Expression {
    ending(vec![VerdictAttribute::Code(Verdict::Jump), VerdictAttribute::Chain(chain.into())])
}

/// Goes back to the chain that led here.
#[must_use]
pub fn back() -> Expression {
    ending(vec![VerdictAttribute::Code(Verdict::Return)])
}

fn ending(verdict: Vec<VerdictAttribute>) -> Expression {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(verdict)),
    ])
    .into()
}
