//! Measurements for the figures: commands of `convoy bench`, one after the other.

use super::many_tunnels;
use super::one_tunnel::{self, DRIVERS, FRAME, FRAMES, PORTABLE, esp_text};
use super::{Experiment, Id, dpdk, look_aside, multi_buffer};
use crate::results::LeftOut;

/// Extent of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A part of the grid, within three minutes.
    Quick,
    /// All of it, within 20 minutes.
    Usual,
    /// All of it, several times longer.
    Full,
}

impl Effort {
    fn of<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}

/// Processors and tiers of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Processors that may be used.
    pub processors: usize,
    /// Tiers, the best last.
    pub tiers: Vec<String>,
    /// True if the portable tier is without special instructions in this build.
    pub portable_is_soft: bool,
}

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Experiment that it is for.
    pub experiment: Experiment,
    /// Its name within the experiment.
    pub name: &'static str,
    /// Arguments behind `convoy bench`.
    pub arguments: Vec<String>,
    /// Variables of its environment.
    pub environment: Vec<(&'static str, &'static str)>,
    /// About how long it takes, seconds.
    pub seconds: f64,
}

/// Variable that has OpenSSL use no instruction beyond the base of x86-64 (OPENSSL_ia32cap(3)).
const NO_FEATURES: (&str, &str) = ("OPENSSL_ia32cap", "0");

/// The user's choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Figures; all, if there are none.
    pub only: Vec<Id>,
    /// Experiments whose results are there.
    pub given: Vec<Experiment>,
    /// Size of the grid, and time.
    pub effort: Effort,
    /// Shared libraries of intel-ipsec-mb, instead of the system's; the second is measured in a step of its own.
    pub ipsec_mb: Vec<String>,
    /// DPDK's ipsec-secgw.
    pub secgw: Option<String>,
}

/// The commands that measure what is wanted; and what is not measured, and why.
#[must_use]
pub fn steps(wanted: &Wanted, machine: &Machine) -> (Vec<Step>, Vec<LeftOut>) {
    let mut plan = Plan { wanted, machine, steps: Vec::new(), left_out: Vec::new() };
    let Wanted { only, given, .. } = wanted;
    for experiment in Experiment::ALL {
        let is_wanted = only.is_empty() || only.iter().any(|id| id.experiment() == experiment);
        match experiment {
            _ if !is_wanted || given.contains(&experiment) => {}
            Experiment::OneTunnel => plan.one_tunnel(),
            Experiment::ManyTunnels => plan.many_tunnels(),
            Experiment::MultiBuffer => plan.multi_buffer(),
            Experiment::LookAside => plan.look_aside(),
            Experiment::Gateways => plan.leave_out(
                "F13: whole gateways",
                "they need namespaces, root and other programs: sudo interop/throughput/compare.py --load all --only all --json > gateways.json measures them, and --with gateways.json takes the result",
            ),
            Experiment::WebServer => plan.web_server(),
        }
    }
    (plan.steps, plan.left_out)
}

struct Plan<'a> {
    wanted: &'a Wanted,
    machine: &'a Machine,
    steps: Vec<Step>,
    left_out: Vec<LeftOut>,
}

impl Plan<'_> {
    fn leave_out(&mut self, what: &str, why: &str) {
        self.left_out.push(LeftOut::new(what, why));
    }

    fn add(&mut self, experiment: Experiment, name: &'static str, words: &str, seconds: f64) {
        let arguments = words.split_whitespace().map(str::to_owned).chain(["--json".to_owned()]);
        let arguments = arguments.collect();
        self.steps.push(Step { experiment, name, arguments, environment: Vec::new(), seconds });
    }

    /// The best tier, and the portable one where it is one; that it is left out, else.
    fn tiers(&mut self) -> String {
        let best = self.machine.tiers.last().map_or(PORTABLE, String::as_str).to_owned();
        if self.machine.portable_is_soft {
            return format!("{best},{PORTABLE}");
        }
        self.leave_out(
            "the portable tier",
            "this build's uses special instructions, so its figures would say nothing; build with make",
        );
        best
    }

    fn one_tunnel(&mut self) {
        let tiers = self.tiers();
        let packets = list(FRAMES.iter().map(|frame| frame - FRAME));
        let time = self.wanted.effort.of(1.0, 3.0, 15.0);
        let words = format!(
            "esp --suite aes-128-gcm-16 --engine inline,{} --tier {tiers} --in-turn --sas 1 --sizes {packets} --mix none --burst 64 --seconds {time}",
            DRIVERS.join(",")
        );
        let each = FRAMES.len() as f64;
        self.add(Experiment::OneTunnel, one_tunnel::IN_TURN, &words, each * (time + 0.3));
        let texts = list(FRAMES.iter().map(|frame| esp_text(frame - FRAME)));
        let time = self.wanted.effort.of(0.2, 1.0, 5.0);
        let words = format!(
            "crypto --suite aes-128-gcm-16 --sizes {texts} --mix none --keys 1 --direction seal --peer openssl --time {time}"
        );
        self.add(Experiment::OneTunnel, one_tunnel::PLAIN, &words, each * (time + 0.1));
        self.steps.last_mut().into_iter().for_each(|step| step.environment.push(NO_FEATURES));
    }

    fn many_tunnels(&mut self) {
        let n = self.machine.processors;
        if n < 2 {
            self.leave_out("F4 to F6: many tunnels on many cores", "there is one processor");
            return;
        }
        let frames: &[usize] = self.wanted.effort.of(&[64, 512, 1458], &FRAMES, &FRAMES);
        let packets = list(frames.iter().map(|frame| frame - FRAME));
        // Of fewer than three rounds there is no spread.
        let (rounds, time) = self.wanted.effort.of((3, 0.15), (5, 1.0), (9, 6.0));
        let measure = format!("--rounds {rounds} --seconds {time} --suite aes-128-gcm-16");
        // Beside what is asked for, each run of a round makes its packets and warms up.
        let each = time + 2.0 * f64::from(rounds) * 0.08;
        let points = frames.len() as f64 * 2.0;
        let words = |engines: &str| {
            format!(
                "esp --workers {n} --sas {n},{} --sizes {packets} --mix none {engines} {measure}",
                2 * n
            )
        };
        let engines = format!("--engine inline,{}", DRIVERS.join(","));
        let experiment = Experiment::ManyTunnels;
        self.add(experiment, many_tunnels::ENGINES, &words(&engines), 4.0 * points * each);
        if self.machine.portable_is_soft {
            let portable = format!("--tier {PORTABLE}");
            self.add(experiment, many_tunnels::PLAIN, &words(&portable), points * each);
        }
        let (rounds, time) = self.wanted.effort.of((5, 1.0), (15, 5.0), (45, 20.0));
        let each = time + 2.0 * f64::from(rounds) * 0.08;
        let measure = format!("--rounds {rounds} --seconds {time} --suite aes-128-gcm-16");
        let words = |workers: usize, sas: &str| {
            format!(
                "esp --workers {workers} --sas {sas} --sizes none --mix imix,imix-paper {measure}"
            )
        };
        self.add(experiment, many_tunnels::MIXES, &words(n, &format!("{n},{}", 2 * n)), 4.0 * each);
        self.add(experiment, many_tunnels::ONE, &words(1, "1"), 2.0 * each);
    }

    fn multi_buffer(&mut self) {
        let sizes: Vec<usize> = match self.wanted.effort {
            Effort::Quick => vec![64, 256, 512, 1024, 1408, 2048],
            _ => (64..=2048).step_by(64).collect(),
        };
        // Of the portable tier the other figures tell.
        let tiers: Vec<&str> = self
            .machine
            .tiers
            .iter()
            .map(String::as_str)
            .filter(|tier| *tier != PORTABLE)
            .collect();
        let beside = tiers.iter().find(|tier| **tier == multi_buffer::BASE);
        let beside = beside.map_or_else(String::new, |tier| format!(" --beside {tier}"));
        let time = self.wanted.effort.of(0.06, 0.08, 0.5);
        let words = format!(
            "crypto --suite {} --sizes {} --mix none --keys 1 --direction seal --api c-job,c-burst --tier {}{beside} --time {time}",
            multi_buffer::SUITES.join(","),
            list(sizes.iter().copied()),
            tiers.join(",")
        );
        let points = (sizes.len() * tiers.len() * multi_buffer::SUITES.len()) as f64;
        let libraries = match self.wanted.ipsec_mb.as_slice() {
            [] => vec![None],
            named => named.iter().map(Some).collect(),
        };
        for (name, path) in [multi_buffer::STEP, multi_buffer::OTHER].into_iter().zip(libraries) {
            self.add(Experiment::MultiBuffer, name, &words, points * (time + 0.04));
            let option = path.map(|path| ["--ipsec-mb".to_owned(), path.clone()]);
            let arguments = self.steps.last_mut().map(|step| &mut step.arguments);
            arguments.into_iter().for_each(|all| all.extend(option.iter().flatten().cloned()));
        }
        self.dpdk(&sizes);
    }

    /// DPDK's devices in turn with Convoy.
    fn dpdk(&mut self, sizes: &[usize]) {
        if self.machine.processors < 2 {
            self.leave_out(
                "F7: DPDK's crypto devices",
                "the main thread of DPDK's program needs a second processor, and there is one",
            );
            return;
        }
        let suites = multi_buffer::SUITES.join(",");
        let sizes = list(sizes.iter().copied());
        let (words, seconds) = match self.wanted.effort {
            Effort::Quick => (format!("dpdk --suite {suites} --quick"), 8.0),
            Effort::Usual => (format!("dpdk --suite {suites} --sizes {sizes}"), 45.0),
            Effort::Full => (format!("dpdk --suite {suites} --sizes {sizes} --rounds 61"), 180.0),
        };
        self.add(Experiment::MultiBuffer, dpdk::DEVICES.step, &words, seconds);
    }

    fn look_aside(&mut self) {
        if self.machine.processors < 2 {
            self.leave_out(
                "F9 to F12: software beside a look-aside device",
                "generator and worker need two processors, and there is one",
            );
            return;
        }
        let (words, seconds) = match self.wanted.effort {
            Effort::Quick => ("forward --quick", 75.0),
            Effort::Usual => ("forward", 480.0),
            Effort::Full => ("forward --searches 15", 1500.0),
        };
        self.add(Experiment::LookAside, look_aside::STEP, words, seconds);
        self.secgw();
    }

    /// DPDK's gateway in turn with a worker.
    fn secgw(&mut self) {
        let Some(path) = self.wanted.secgw.clone() else {
            self.leave_out(
                "F9: DPDK's ipsec-secgw",
                "no distribution ships it: interop/secgw/build.sh makes one, and --secgw PATH takes it",
            );
            return;
        };
        let (words, seconds) = match self.wanted.effort {
            Effort::Quick => ("dpdk --quick", 15.0),
            Effort::Usual => ("dpdk", 60.0),
            Effort::Full => ("dpdk --rounds 31", 270.0),
        };
        self.add(Experiment::LookAside, dpdk::GATEWAY.step, words, seconds);
        let arguments = self.steps.last_mut().map(|step| &mut step.arguments);
        arguments.into_iter().for_each(|all| all.extend(["--secgw".to_owned(), path.clone()]));
    }

    fn web_server(&mut self) {
        if self.wanted.effort == Effort::Quick {
            self.leave_out(
                "F14 to F16: a web server",
                "--quick leaves them out: convoy bench tls --quick --json measures them, and --with takes its result",
            );
            return;
        }
        let words = self.wanted.effort.of("tls --quick", "tls --quick", "tls");
        let seconds = self.wanted.effort.of(180.0, 180.0, 1800.0);
        self.add(Experiment::WebServer, super::web_server::STEP, words, seconds);
    }
}

fn list(numbers: impl Iterator<Item = usize>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let tiers = ["portable", "aesni", "vaes256"].map(str::to_owned).to_vec();
        Machine { processors: 2, tiers, portable_is_soft: true }
    }

    fn wanted(only: &[&str], effort: Effort) -> Wanted {
        let only = only.iter().map(|id| id.parse().unwrap()).collect();
        Wanted { only, given: Vec::new(), effort, ipsec_mb: Vec::new(), secgw: None }
    }

    fn named(steps: &[Step], experiment: Experiment) -> Vec<&'static str> {
        steps.iter().filter(|step| step.experiment == experiment).map(|step| step.name).collect()
    }

    #[test]
    fn a_quick_report_takes_three_minutes_at_most_and_names_what_it_leaves_out() {
        let (steps, left_out) = steps(&wanted(&[], Effort::Quick), &machine());
        let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
        assert!(seconds < 170.0, "{seconds}");
        assert!(left_out.iter().any(|one| one.what.starts_with("F13")), "{left_out:?}");
        assert!(left_out.iter().any(|one| one.what.starts_with("F14")), "{left_out:?}");
        let (steps, _) = super::steps(&wanted(&[], Effort::Usual), &machine());
        let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
        assert!(seconds < 1200.0, "{seconds}");
    }

    #[test]
    fn only_what_is_wanted_is_measured() {
        let (steps, left_out) = steps(&wanted(&["F1", "F2"], Effort::Usual), &machine());
        assert_eq!(named(&steps, Experiment::OneTunnel), [one_tunnel::IN_TURN, one_tunnel::PLAIN]);
        assert_eq!((steps.len(), left_out.len()), (2, 0));
        let given = vec![Experiment::OneTunnel, Experiment::Gateways];
        let others = Wanted { given, ..wanted(&[], Effort::Quick) };
        let (others, left_out) = super::steps(&others, &machine());
        assert!(named(&others, Experiment::OneTunnel).is_empty());
        assert!(left_out.iter().all(|one| !one.what.starts_with("F13")), "{left_out:?}");
        let words = steps[0].arguments.join(" ");
        assert!(words.contains("--sizes 46,110,238,494,750,1006,1262,1440"), "{words}");
        assert!(words.contains("--tier vaes256,portable") && words.ends_with("--json"), "{words}");
        assert!(steps[1].arguments.join(" ").contains("--sizes 48,112,240,496,752,1008,1264,1444"));
        assert_eq!(steps[1].environment, [NO_FEATURES]);
    }

    #[test]
    fn dpdk_is_asked_for_the_suites_and_sizes_of_the_library() {
        let words = |effort| {
            let (steps, _) = steps(&wanted(&["F7"], effort), &machine());
            assert_eq!(
                named(&steps, Experiment::MultiBuffer),
                [multi_buffer::STEP, dpdk::DEVICES.step]
            );
            steps.iter().map(|step| step.arguments.join(" ")).collect::<Vec<_>>()
        };
        let all = words(Effort::Usual);
        let sizes = |words: &str| {
            let list = words.split(' ').skip_while(|word| *word != "--sizes").nth(1);
            list.map(|list| list.split(',').count())
        };
        // As many as the program takes.
        assert_eq!((sizes(&all[0]), sizes(&all[1])), (Some(32), Some(32)));
        let suites = multi_buffer::SUITES.join(",");
        assert_eq!(words(Effort::Quick)[1], format!("dpdk --suite {suites} --quick --json"));
        assert!(words(Effort::Full)[1].contains("--rounds 61"));
    }

    #[test]
    fn libraries_that_are_named_are_measured_one_after_the_other() {
        let paths = ["/lib/old mb.so.1", "/lib/mb.so.2"].map(str::to_owned);
        let two = Wanted { ipsec_mb: paths.to_vec(), ..wanted(&["F8"], Effort::Quick) };
        let (steps, _) = steps(&two, &machine());
        let names = [multi_buffer::STEP, multi_buffer::OTHER, dpdk::DEVICES.step];
        assert_eq!(named(&steps, Experiment::MultiBuffer), names);
        for (step, path) in steps.iter().zip(&paths) {
            assert!(step.arguments.ends_with(&["--ipsec-mb".to_owned(), path.clone()]), "{step:?}");
        }
        assert!(!steps[2].arguments.contains(&"--ipsec-mb".to_owned()));
    }

    #[test]
    fn dpdks_gateway_is_measured_where_it_is_and_named_where_it_is_not() {
        let without = wanted(&["F9"], Effort::Quick);
        let (first, left_out) = steps(&without, &machine());
        assert_eq!(named(&first, Experiment::LookAside), [look_aside::STEP]);
        assert!(left_out[0].why.contains("interop/secgw/build.sh"), "{left_out:?}");
        let secgw = Some("/opt/a b/ipsec-secgw".to_owned());
        let (steps, left_out) = steps(&Wanted { secgw, ..without }, &machine());
        let names = [look_aside::STEP, dpdk::GATEWAY.step];
        assert!(named(&steps, Experiment::LookAside) == names && left_out.is_empty());
        let words = ["dpdk", "--quick", "--json", "--secgw", "/opt/a b/ipsec-secgw"];
        assert_eq!(steps[1].arguments, words);
    }

    #[test]
    fn what_the_machine_cannot_is_named() {
        let one = Machine { processors: 1, portable_is_soft: false, ..machine() };
        let (steps, left_out) = steps(&wanted(&[], Effort::Usual), &one);
        assert!(named(&steps, Experiment::ManyTunnels).is_empty());
        assert!(named(&steps, Experiment::LookAside).is_empty());
        for what in ["F4", "F7: DPDK", "F9", "the portable tier"] {
            assert!(left_out.iter().any(|one| one.what.starts_with(what)), "{what}: {left_out:?}");
        }
        assert!(!steps.iter().any(|step| step.arguments.join(" ").contains(PORTABLE)));
    }
}
