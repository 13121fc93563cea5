//! Largest outer packets of SAs.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use convoy_xfrm::{Request, Sa};

use super::tests::{HERE, ask, kernel, outbounds, sa};
use super::*;

const NEAR: [u8; 4] = [192, 0, 2, 2];
const FAR: [u8; 4] = [198, 51, 100, 7];
const UNREACHED: [u8; 4] = [203, 0, 113, 7];

/// A host with routes to two peers; that to [`FAR`] takes as much as is said.
#[derive(Clone, Debug)]
struct Routes(Arc<AtomicU16>);

impl Host for Routes {
    fn is_local(&self, address: IpAddr) -> bool {
        address == IpAddr::from(HERE)
    }

    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        Some(HERE.into())
    }

    fn mtu_between(&self, source: IpAddr, destination: IpAddr) -> Option<u16> {
        assert_eq!(source, IpAddr::from(HERE), "an SA that receives has no path");
        let far = || self.0.load(Ordering::Relaxed);
        [(NEAR, 9000), (FAR, far())]
            .into_iter()
            .find_map(|(peer, mtu)| (destination == IpAddr::from(peer)).then_some(mtu))
    }
}

#[test]
fn each_sa_follows_the_route_to_its_own_peer() {
    let (mut kernel, published) = kernel();
    let far = Arc::new(AtomicU16::new(1400));
    kernel.kernel.host = Box::new(Routes(far.clone()));
    let mut add = |sa: Sa| ask(&mut kernel, Request::NewSa(Box::new(sa)), 0).unwrap();
    for (spi, peer) in [(1, NEAR), (2, FAR), (3, UNREACHED)] {
        add(sa(HERE, peer, spi, spi as u8));
    }
    add(sa(FAR, HERE, 4, 4));
    let paths = || {
        let mut paths: Vec<_> =
            outbounds(&published).iter().map(|sa| (sa.spi.get(), sa.path_mtu)).collect();
        paths.sort_unstable();
        paths
    };
    assert_eq!(paths(), [(1, 9000), (2, 1400), (3, 1500)], "from the first packet on");
    let before = published.generation();
    assert_eq!(kernel.follow_paths(1500), []);
    assert_eq!(published.generation(), before, "what routers said of paths stays");
    far.store(1500, Ordering::Relaxed);
    let change = PathChange { peer: FAR.into(), before: 1400, now: 1500 };
    assert_eq!(kernel.follow_paths(1500), [change]);
    assert_eq!(paths(), [(1, 9000), (2, 1500), (3, 1500)]);
    let change = PathChange { peer: UNREACHED.into(), before: 1500, now: 1300 };
    assert_eq!(kernel.follow_paths(1300), [change]);
    assert_eq!(paths(), [(1, 9000), (2, 1500), (3, 1300)]);
}
