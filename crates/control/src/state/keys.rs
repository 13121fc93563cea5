//! SAs of a site by their keys.

use std::collections::HashMap;

use convoy_ipsec::key::{Nonces, SaKeyMaterial};

use crate::site::{Association, Site};

/// Finds the SAs of a site by their keys.
#[derive(Default)]
pub(super) struct SiteKeys<'a> {
    outbound: HashMap<Nonces<'a>, &'a Association>,
    inbound: HashMap<Nonces<'a>, &'a Association>,
}

impl<'a> SiteKeys<'a> {
    pub(super) fn of(site: &'a Site) -> Self {
        let by_key = |sa: &'a Association| (Nonces(&sa.key), sa);
        Self {
            outbound: site.outbound.iter().map(|sa| by_key(&sa.association)).collect(),
            inbound: site.inbound.iter().map(|sa| by_key(&sa.association)).collect(),
        }
    }

    /// The outbound SA with this key.
    pub(super) fn outbound(&self, key: &SaKeyMaterial) -> Option<&'a Association> {
        self.outbound.get(&Nonces(key)).copied()
    }

    /// The inbound SA with this key.
    pub(super) fn inbound(&self, key: &SaKeyMaterial) -> Option<&'a Association> {
        self.inbound.get(&Nonces(key)).copied()
    }

    /// The SA with this key, whatever its direction.
    pub(super) fn any(&self, key: &SaKeyMaterial) -> Option<&'a Association> {
        self.outbound(key).or_else(|| self.inbound(key))
    }
}
