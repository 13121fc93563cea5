//! Convoy and its peers seal to the same bytes, through every interface that is measured.

use std::path::Path;

use convoy_bench::contender::{Contender, agree};
use convoy_bench::convoy::Convoy;
use convoy_bench::mix::{Mix, Sizes};
use convoy_bench::peer::PeerError;
use convoy_bench::peer::ipsec_mb::{self, Arch, Checks, IpsecMb};
use convoy_bench::peer::openssl::{self, OpenSsl};
use convoy_bench::workload::Workload;
use convoy_crypto::Cpu;

#[test]
fn intel_ipsec_mb_agrees_with_convoy() {
    let path = std::env::var_os("CONVOY_TEST_IPSEC_MB");
    for arch in Arch::ALL {
        let library = match IpsecMb::load(path.as_deref().map(Path::new), arch) {
            Ok(library) => library,
            Err(error @ PeerError::Missing { .. }) => {
                println!("SKIPPED intel-ipsec-mb: {error}");
                return;
            }
            Err(error) => {
                println!("SKIPPED intel-ipsec-mb {arch}: {error}");
                continue;
            }
        };
        println!("{} {}", library.version(), library.arch());
        each_suite(|work| ipsec_mb::contenders(&library, work, &Checks::ALL));
    }
}

#[test]
fn openssl_agrees_with_convoy() {
    let library = match OpenSsl::load(None) {
        Ok(library) => library,
        Err(error) => return println!("SKIPPED OpenSSL: {error}"),
    };
    each_suite(|work| openssl::contenders(&library, work));
}

#[test]
fn the_peers_agree_with_each_other() {
    let (Ok(openssl), Ok(ipsec_mb)) = (OpenSsl::load(None), IpsecMb::load(None, Arch::SseType1))
    else {
        return println!("SKIPPED the peers among themselves: one of them is not here");
    };
    each_suite(|work| {
        let mut both = openssl::contenders(&openssl, work);
        both.extend(ipsec_mb::contenders(&ipsec_mb, work, &Checks::ALL));
        both
    });
}

fn each_suite(peers: impl Fn(&Workload) -> Vec<Box<dyn Contender>>) {
    let cpu = Cpu::detect().unwrap();
    let mut suites = 0;
    for suite in convoy_bench::suite::all() {
        for sizes in [Sizes::Fixed(64), Sizes::Mix(Mix::Imix)] {
            for keys in [1, 7] {
                let work = Workload::new(suite, sizes, keys, 200);
                let mut contenders: Vec<Box<dyn Contender>> = Vec::new();
                contenders.push(Box::new(Convoy::new(&cpu, cpu.best(), &work).unwrap()));
                contenders.extend(peers(&work));
                if contenders.len() < 2 {
                    println!("nobody to compare for {suite}");
                    continue;
                }
                suites += 1;
                agree(&work, &mut contenders).unwrap();
            }
        }
    }
    println!("{suites} workloads");
}
