//! A soak with faults, in a process of its own, because it looks at the memory of the process.

use std::process::Command;

use convoy_bench::esp::rig::Task;
use convoy_bench::esp::site::Shape;
use convoy_bench::esp::soak::soak;
use convoy_bench::maker::Maker;
use convoy_bench::mix::{Mix, Sizes};
use convoy_crypto::Cpu;
use convoy_io::fault::Faults;

/// Set for the process that soaks.
const CHILD: &str = "CONVOY_TEST_SOAK";

#[test]
fn what_the_injector_does_is_accounted_for() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "soak::child_soaks", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("soaked"), "{told}{errors}");
}

#[test]
fn child_soaks() {
    if std::env::var_os(CHILD).is_some() {
        the_injector_is_accounted_for();
        println!("soaked");
    }
}

fn the_injector_is_accounted_for() {
    let cpu = Cpu::detect().unwrap();
    let faults = Faults {
        loss: 0.02,
        duplication: 0.05,
        reordering: 0.1,
        distance: 32,
        bit_flip: 0.03,
        truncation: 0.02,
    };
    for (sizes, sas, esn) in [(Sizes::Fixed(64), 1, false), (Sizes::Mix(Mix::ImixPaper), 5, true)] {
        let shape = Shape { esn, ..Shape::new(sas) };
        let suite = "aes-128-gcm-16".parse().unwrap();
        let task = Task { suite, sizes, shape, faults: Some(faults), burst: 256 };
        let mut told = 0;
        let soak = soak(&Maker::Tier(cpu, cpu.best()), &task, 20_000, |_| told += 1).unwrap();
        assert_eq!(soak.errors(), [""; 0], "{soak:?}");
        let books = &soak.books;
        let injected = books.faults.unwrap();
        assert!(books.sent >= 20_000 && told >= 20);
        assert!(injected.lost > 100 && injected.duplicated > 100 && injected.reordered > 100);
        assert!(books.missing > injected.lost, "damaged packets are missing as well");
        let named = |name| books.dropped.iter().any(|(reason, n)| *reason == name && *n > 0);
        assert!(named("replayed") && named("bad-icv") && named("ip-total-length"), "{books:?}");
    }
}
