//! A driver from outside the crate: registers aws-lc beside Convoy's own drivers and lists them.
//!
//! `cargo run --release -p convoy-engine --example aws_lc`

mod driver;

use std::error::Error;

use convoy_crypto::Cpu;
use convoy_engine::registry::Registry;

fn main() -> Result<(), Box<dyn Error>> {
    let cpu = Cpu::detect()?;
    let mut registry = Registry::of(&cpu);
    for driver in driver::drivers(&cpu) {
        registry.register(driver)?;
    }
    for algorithm in [driver::GCM, driver::CHACHA] {
        println!("{algorithm}");
        for driver in registry.drivers().filter(|driver| driver.algorithm() == algorithm) {
            println!(
                "  {:4}  {}: self-test {}",
                driver.priority(),
                driver.name(),
                driver.self_test()
            );
        }
        println!("  chosen: {}", registry.for_algorithm(algorithm)?.name());
    }
    Ok(())
}
