//! Packets that NAT gave the addresses of protected ones behind routing: they are taken out of the kernel.
//!
//! What is dropped there before it leaves, the kernel forgets, the new source of its flow included. So the first packet of
//! a flow is taken when the flow was entered into the kernel's table: then answers find their way back, and further
//! packets are led into the TUN interface by marks ([`crate::chains::rewritten`]).

use convoy_netlink::{
    conntrack::{self, Conntrack},
    nft::{Nft, Note},
    queue::{Answer, Question},
};

use crate::{
    answers::Policies,
    chains::rewritten::NOTES,
    config::Config,
    error::LeakProtectionError,
    marks::{Marks, Noted, Verdict},
};

/// Netlink sockets by which flows are entered into the kernel's table.
#[derive(Debug)]
pub(crate) struct Hidden {
    table: String,
    nft: Nft,
    flows: Conntrack,
}

impl Hidden {
    pub(crate) fn open(config: &Config) -> Result<Self, LeakProtectionError> {
        let nft = Nft::open().map_err(LeakProtectionError::Netlink)?;
        let flows = Conntrack::open().map_err(LeakProtectionError::Flows)?;
        Ok(Self { table: config.table(), nft, flows })
    }

    /// Verdict on a packet, and the answer to the kernel. Where policies tell packets apart they are asked about it as it
    /// is now, as a kernel would.
    pub(crate) fn answer(
        &mut self,
        marks: Marks,
        question: &Question<'_>,
        policies: &mut impl Policies,
    ) -> (Verdict, Answer) {
        const DROPPED: (Verdict, Answer) = (Verdict::Discard, Answer::Drop);
        let Some(is) = marks.rewritten_of(question.mark) else { return DROPPED };
        let packet = question.packet;
        let verdict = if is.is_whole { Verdict::Protect } else { policies.outbound(packet) };
        if verdict == Verdict::Discard {
            return DROPPED;
        }
        let note = if is.is_first { self.note(question) } else { None };
        if is.is_first && note.is_none() {
            return DROPPED;
        }
        if verdict == Verdict::Bypass {
            let mark = note.map_or(question.mark, |note| note.mark);
            return (verdict, Answer::Accept(marks.answered(mark, Noted::Bypass, false)));
        }
        if note.is_some_and(|note| !self.enter(packet, &note)) {
            return DROPPED;
        }
        policies.take(packet);
        (verdict, Answer::Drop)
    }

    /// The note of the packet's flow that a rule left.
    fn note(&mut self, question: &Question<'_>) -> Option<Note> {
        let is_v4 = question.packet.first()? >> 4 == 4;
        let notes = NOTES.into_iter().find(|notes| notes.is_v4 == is_v4)?;
        notes.read(&mut self.nft, &self.table, question.mark).ok()?
    }

    fn enter(&mut self, packet: &[u8], note: &Note) -> bool {
        let flow = conntrack::Hidden::of(packet, note.source, note.port);
        // Numbers of notes are random, so one may be another packet's.
        let flow = flow.filter(|flow| flow.shown() == note.shown);
        flow.is_some_and(|flow| self.flows.enter(&flow).unwrap_or_default())
    }
}
