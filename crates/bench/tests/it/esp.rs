//! Packets go all the way through both pipelines, and every one is accounted for.

use std::time::Duration;

use convoy_bench::cores::Cores;
use convoy_bench::esp::measure::{DirectionCost, measure};
use convoy_bench::esp::rig::{Rig, RigError, Task};
use convoy_bench::esp::site::Shape;
use convoy_bench::esp::soak::soak;
use convoy_bench::esp::stages::Clock;
use convoy_bench::esp::workers::{Division, Runs, rates};
use convoy_bench::esp::{goal, report};
use convoy_bench::maker::Maker;
use convoy_bench::mix::{Mix, Sizes};
use convoy_bench::suite;
use convoy_crypto::{Cpu, Tier};
use convoy_engine::registry::Registry;
use convoy_io::fault::Faults;

const SHORT: Duration = Duration::from_millis(1);

fn task(suite: &str, sizes: Sizes, shape: Shape) -> Task {
    // Where others use the processor, short bursts are disturbed less often.
    Task { suite: suite.parse().unwrap(), sizes, shape, faults: None, burst: 16 }
}

fn gcm(sizes: Sizes, shape: Shape) -> Task {
    task("aes-128-gcm-16", sizes, shape)
}

#[test]
fn points_hold_what_was_asked_for_and_numbers_that_hang_together() {
    let cpu = Cpu::detect().unwrap();
    let shape = Shape { policies: 7, flows: 100, esn: true, ..Shape::new(3) };
    for sizes in [Sizes::Fixed(64), Sizes::Mix(Mix::Imix)] {
        let point =
            measure::<()>(&Maker::Tier(cpu, cpu.best()), &gcm(sizes, shape), SHORT).unwrap();
        assert_eq!((point.sas, point.policies, point.flows, point.esn), (3, 7, 100, true));
        assert_eq!((point.size, point.tier), (sizes, cpu.best().name()));
        for way in [&point.outbound, &point.inbound] {
            assert!(way.pipeline.mean > 0.0 && way.crypto.mean > 0.0, "{way:?}");
            assert!(way.pipeline.low <= way.pipeline.median);
        }
        assert_eq!(point.books.errors(), [""; 0]);
        assert_eq!(point.books.received, point.books.sent);
        assert!(point.books.sent >= 16 * point.bursts as u64);
        let rows = report::point_rows(&[point]);
        assert_eq!(rows[0].len(), rows[1].len());
    }
}

#[test]
fn a_watched_point_tells_the_stages_of_each_direction() {
    let cpu = Cpu::detect().unwrap();
    let task = gcm(Sizes::Fixed(64), Shape::new(2));
    let point = measure::<Clock>(&Maker::Tier(cpu, cpu.best()), &task, SHORT).unwrap();
    let names = |way: &DirectionCost| way.stages.iter().map(|cost| cost.stage).collect::<Vec<_>>();
    assert_eq!(names(&point.outbound), ["parse", "classify", "protect", "engine", "forward"]);
    assert_eq!(names(&point.inbound), ["demux", "engine", "commit", "decap", "policy"]);
    for way in [&point.outbound, &point.inbound] {
        let sum: f64 = way.stages.iter().map(|cost| cost.packet.low).sum();
        assert!(sum <= 1.5 * way.pipeline.high, "{way:?}");
    }
    assert_eq!(report::stage_rows(&[point]).len(), 3);
}

#[test]
fn figures_to_reach_are_found_by_suite_size_and_number_of_sas() {
    let cpu = Cpu::detect().unwrap();
    let mut points = Vec::new();
    for (size, sas) in [(64, 1), (64, 2), (1420, 1), (100, 1)] {
        let task = gcm(Sizes::Fixed(size), Shape::new(sas));
        points.push(measure::<()>(&Maker::Tier(cpu, cpu.best()), &task, SHORT).unwrap());
    }
    let figures = goal::figures(&points);
    let whole: Vec<_> = figures
        .iter()
        .filter(|figure| figure.what == goal::WHOLE_PACKET)
        .map(|figure| (figure.size, figure.goal))
        .collect();
    assert_eq!(whole, [(Sizes::Fixed(64), 185.0), (Sizes::Fixed(1420), 1000.0)]);
    // One SA: the whole, two directions and the look-up; two SAs: the look-up alone.
    assert_eq!(figures.len(), 4 + 1 + 4);
    assert!(figures.iter().all(|figure| figure.reached == (figure.measured <= figure.goal)));
}

#[test]
fn only_loss_is_missing_where_nothing_is_damaged() {
    let cpu = Cpu::detect().unwrap();
    let faults = Faults { loss: 0.1, duplication: 0.1, reordering: 0.1, ..Faults::default() };
    let task = Task {
        faults: Some(Faults { distance: 64, ..faults }),
        ..gcm(Sizes::Fixed(100), Shape::new(2))
    };
    let books = soak(&Maker::Tier(cpu, cpu.best()), &task, 10_000, |_| ()).unwrap().books;
    assert_eq!(books.errors(), [""; 0]);
    assert_eq!(books.missing, books.faults.unwrap().lost);
}

#[test]
fn every_tier_passes_every_packet() {
    let cpu = Cpu::detect().unwrap();
    for tier in Tier::ALL.into_iter().filter(|tier| cpu.has(*tier)) {
        let task = Task { burst: 17, ..gcm(Sizes::Fixed(333), Shape::new(2)) };
        let point = measure::<()>(&Maker::Tier(cpu, tier), &task, SHORT).unwrap();
        assert_eq!((point.tier, point.books.errors()), (tier.name(), vec![]));
    }
}

#[test]
fn every_suite_passes_every_packet() {
    let cpu = Cpu::detect().unwrap();
    for (n, suite) in suite::all().enumerate() {
        let shape = Shape { esn: n % 2 == 0, ..Shape::new(3) };
        let task = gcm(Sizes::Mix(Mix::Imix), shape);
        let point =
            measure::<()>(&Maker::Tier(cpu, cpu.best()), &Task { suite, ..task }, SHORT).unwrap();
        assert_eq!(point.books.errors(), [""; 0], "{suite}");
        assert_eq!(point.suite, suite.to_string());
    }
}

#[test]
fn workers_divide_sas_and_pass_every_packet() {
    let cpu = Cpu::detect().unwrap();
    let cpus = Cores::allowed().unwrap();
    let workers: Vec<u16> = if cpus.len() > 1 { vec![1, 2] } else { vec![1] };
    let task = gcm(Sizes::Mix(Mix::ImixPaper), Shape::new(4));
    let runs = Runs {
        workers: &workers,
        cpus: &cpus,
        division: Division::Sas,
        rounds: 3,
        time: Duration::from_millis(20),
    };
    let maker = Maker::Tier(cpu, cpu.best());
    let rates = rates(&maker, &task, &runs).unwrap();
    assert_eq!(rates.iter().map(|rate| rate.workers).collect::<Vec<_>>(), workers);
    for rate in &rates {
        assert_eq!(rate.errors, [""; 0]);
        assert!(rate.packets.median > 0.0 && rate.ratio.median > 0.0, "{rate:?}");
    }
    assert_eq!(goal::worker_figures(&rates).len(), workers.len() - 1);
    assert_eq!(report::rate_rows(&rates).len(), 1 + rates.len());
}

#[test]
fn workers_pass_every_packet_with_a_driver_that_does_no_work() {
    let task = gcm(Sizes::Fixed(200), Shape::new(2));
    let registry = Registry::of(&Cpu::detect().unwrap());
    let maker = Maker::driver(&registry, "null", task.suite).unwrap().unwrap();
    let cpus = Cores::allowed().unwrap();
    let runs = Runs {
        workers: &[1],
        cpus: &cpus,
        division: Division::Sas,
        rounds: 1,
        time: Duration::from_millis(20),
    };
    let rates = rates(&maker, &task, &runs).unwrap();
    assert_eq!(rates[0].errors, [""; 0]);
    assert!(rates[0].engine.ends_with("-null") && rates[0].packets.median > 0.0, "{rates:?}");
}

#[test]
fn tasks_that_cannot_be_are_refused() {
    let cpu = Cpu::detect().unwrap();
    let refused = |task: &Task| Rig::<()>::new(&Maker::Tier(cpu, cpu.best()), task).unwrap_err();
    let small = gcm(Sizes::Fixed(39), Shape::new(1));
    assert!(matches!(refused(&small), RigError::Size(39)));
    let burst = Task { burst: 257, ..gcm(Sizes::Fixed(64), Shape::new(1)) };
    assert!(matches!(refused(&burst), RigError::Burst(257)));
    let shape = Shape { policies: 2, ..Shape::new(3) };
    assert!(matches!(refused(&gcm(Sizes::Fixed(64), shape)), RigError::Site(_)));
}

#[test]
fn drivers_do_the_cryptography_of_both_pipelines() {
    let cpu = Cpu::detect().unwrap();
    let registry = Registry::of(&cpu);
    let task = gcm(Sizes::Fixed(200), Shape::new(2));
    let own = format!("convoy-{}", cpu.best());
    for word in ["null", "two-pass", "two-pass-clmul", own.as_str()] {
        if word == "two-pass-clmul" && cpu.best() == Tier::Portable {
            println!("SKIPPED: no carry-less multiplication here");
            continue;
        }
        let maker = Maker::driver(&registry, word, task.suite).unwrap().unwrap();
        let point = measure::<()>(&maker, &task, SHORT).unwrap();
        assert_eq!(point.books.errors(), [""; 0], "{word}");
        assert_eq!(point.engine, maker.name());
        assert!(point.engine.ends_with(word), "{}", point.engine);
    }
}

#[test]
fn drivers_are_found_by_their_names_and_by_the_end_of_them() {
    let registry = Registry::of(&Cpu::detect().unwrap());
    let gcm = "aes-128-gcm-16".parse().unwrap();
    let cbc = "aes-128-cbc+hmac-sha1-96".parse().unwrap();
    let name = |word, suite| {
        Maker::driver(&registry, word, suite).map(|maker| Some(maker?.name().to_owned()))
    };
    let full = "rfc4106-gcm-aes-two-pass";
    assert_eq!(name("two-pass", gcm).unwrap().as_deref(), Some(full));
    assert_eq!(name(full, gcm).unwrap().as_deref(), Some(full));
    assert_eq!(name(full, cbc), Ok(None));
    assert_eq!(name("two-pass", cbc), Ok(None));
    assert_eq!(name("null", cbc).unwrap().as_deref(), Some("authenc-hmac-sha1-cbc-aes-null"));
    for unknown in ["abacus", "pass", ""] {
        let error = name(unknown, gcm).unwrap_err();
        assert!(error.to_string().contains(unknown), "{error}");
    }
}
