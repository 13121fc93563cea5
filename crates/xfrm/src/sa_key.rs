//! Identities of SAs: of one, or of those of a dump.

use std::net::IpAddr;

use convoy_wire::{IpVersion, Spi};

use crate::address::{self, PROTO_ANY, ProtocolFilter, RawAddress, SaProtocol};
use crate::attribute::{ADDRESS_FILTER, Attributes, IF_ID, MARK, Others, PROTO, SRCADDR};
use crate::bytes::{Fields, Writer};
use crate::mark::Mark;
use crate::refusal::{Errno, Refusal};

/// Identity of an SA: `struct xfrm_usersa_id`, 24 bytes, and the fields that its attributes add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SaKey {
    /// The destination of its packets.
    pub destination: IpAddr,
    /// Its SPI.
    pub spi: Option<Spi>,
    /// Its protocol.
    pub protocol: SaProtocol,
    /// The source of its packets, of the same version, which names SAs that have no SPI.
    pub source: Option<IpAddr>,
    /// A mark that the SA's own is to match.
    pub mark: Mark,
    /// The XFRM interface that some daemons send; kernels do not look at it.
    pub if_id: u32,
}

impl SaKey {
    /// The fixed structure.
    pub(crate) fn write_id(&self, to: &mut Writer) {
        to.address(self.destination);
        to.be32(self.spi.map_or(0, Spi::get));
        to.u16(address::family(Some(IpVersion::of_addr(self.destination))));
        to.u8(self.protocol.number());
        to.zeros::<1>();
    }
}

/// `struct xfrm_usersa_id` with its numbers as they came.
pub(crate) struct RawSaId {
    destination: RawAddress,
    spi: u32,
    family: u16,
    protocol: u8,
}

impl RawSaId {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let id = Self {
            destination: fields.array(),
            spi: fields.be32(),
            family: fields.u16(),
            protocol: fields.u8(),
        };
        fields.skip::<1>();
        id
    }

    pub(crate) const fn version(&self) -> Option<IpVersion> {
        address::version(self.family)
    }

    /// # Errors
    /// `missing` for a family or protocol of which there are no SAs.
    pub(crate) fn key(&self, missing: Errno) -> Result<SaKey, Refusal> {
        let version = self.version().ok_or_else(|| Refusal::bare(missing))?;
        let protocol =
            SaProtocol::from_number(self.protocol).ok_or_else(|| Refusal::bare(missing))?;
        Ok(SaKey {
            destination: address::address(version, self.destination),
            spi: Spi::new(self.spi),
            protocol,
            source: None,
            mark: Mark::default(),
            if_id: 0,
        })
    }
}

/// One SA: `GETSA` and `DELSA`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaQuery {
    /// Identity of the SA.
    pub key: SaKey,
    /// Attributes without a place here.
    pub others: Others,
}

impl SaQuery {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let raw = RawSaId::read(&mut Fields::new(fixed));
        let protocol = SaProtocol::from_number(raw.protocol);
        let ipsec = protocol.is_some_and(SaProtocol::is_ipsec) || raw.protocol == PROTO_ANY;
        let source = attributes.take(SRCADDR);
        if !ipsec && source.is_none() {
            // Other SAs are found by their addresses.
            return Err(Refusal::bare(Errno::EINVAL));
        }
        let mut key = raw.key(Errno::ESRCH)?;
        let version = IpVersion::of_addr(key.destination);
        key.source = source.map(|payload| Fields::new(payload).address(version));
        key.mark = Mark::take(&mut attributes, MARK);
        key.if_id = attributes.take_u32(IF_ID).unwrap_or_default();
        Ok(Self { key, others: attributes.others() })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.key.write_id(to);
        if let Some(source) = self.key.source {
            to.attribute(SRCADDR, |to| to.address(source));
        }
        self.key.mark.write(to, MARK);
        to.attribute_unless_zero(IF_ID, self.key.if_id);
        self.others.write(to);
    }
}

/// Selects the SAs of a dump: `struct xfrm_address_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressFilter {
    /// The version of the outer addresses; `None` for both.
    pub version: Option<IpVersion>,
    /// The bits of the source address, IPv4's at the front.
    pub source: [u8; 16],
    /// Number of leading bits that count.
    pub source_len: u8,
    /// The bits of the destination address.
    pub destination: [u8; 16],
    /// Number of leading bits that count.
    pub destination_len: u8,
}

impl AddressFilter {
    fn read(payload: &[u8]) -> Result<Self, Refusal> {
        let mut fields = Fields::new(payload);
        let (source, destination) = (fields.array(), fields.array());
        let (family, source_len, destination_len) = (fields.u16(), fields.u8(), fields.u8());
        if source_len > 128 || destination_len > 128 {
            return Err(Refusal::bare(Errno::EINVAL));
        }
        let version = address::version(family);
        Ok(Self { version, source, source_len, destination, destination_len })
    }

    /// True if an SA between these addresses is selected.
    #[must_use]
    pub fn matches(&self, source: IpAddr, destination: IpAddr) -> bool {
        let agree = |address: IpAddr, bits: [u8; 16], len: u8| {
            let differ = u128::from_be_bytes(address::raw(address)) ^ u128::from_be_bytes(bits);
            differ.leading_zeros() >= u32::from(len)
        };
        self.version.is_none_or(|version| version == IpVersion::of_addr(destination))
            && agree(source, self.source, self.source_len)
            && agree(destination, self.destination, self.destination_len)
    }
}

/// All SAs: `GETSA` with the dump flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaDump {
    /// Of which protocols.
    pub protocol: ProtocolFilter,
    /// Between which addresses.
    pub addresses: Option<AddressFilter>,
    /// Attributes without a place here.
    pub others: Others,
}

impl SaDump {
    pub(crate) fn read(mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let protocol = match attributes.take(PROTO) {
            Some([number, ..]) => ProtocolFilter(*number),
            _ => ProtocolFilter::ALL,
        };
        let addresses = attributes.take(ADDRESS_FILTER).map(AddressFilter::read).transpose()?;
        Ok(Self { protocol, addresses, others: attributes.others() })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        if self.protocol != ProtocolFilter::ALL {
            to.attribute(PROTO, |to| to.u8(self.protocol.0));
        }
        if let Some(filter) = &self.addresses {
            to.attribute(ADDRESS_FILTER, |to| {
                to.bytes(&filter.source);
                to.bytes(&filter.destination);
                to.u16(address::family(filter.version));
                to.u8(filter.source_len);
                to.u8(filter.destination_len);
            });
        }
        self.others.write(to);
    }
}
