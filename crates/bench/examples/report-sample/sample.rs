//! The report. Its figures are what is hard to draw: many series, few values, none, long names, hostile ones.

use convoy_bench::chart::{
    Axis, Bar, Bars, Chart, Dot, Figure, Kind, Line, Lines, Polygon, Quality, Radar, Role, Scale,
    Studied, Value, Verdict,
};
use convoy_bench::class::Class;
use convoy_bench::html::{Headline, Report};
use convoy_bench::machine::{Machine, PeerVersion};
use convoy_bench::results::LeftOut;

/// A name that would be harmful in a page that did not escape it.
pub(crate) const HOSTILE: &str = "<script>alert(\"1\")</script> & 'quotes' <b>";
/// A name that is longer than most.
const LONG: &str = "a gateway whose makers gave it a name that goes on for rather more than one line of a drawing, and/its-version-which-has-no-gap-at-all-anywhere";

/// The whole report.
pub(crate) fn report() -> Report {
    Report {
        title: "What Convoy does on a made-up machine".to_owned(),
        headline: headline(),
        figures: vec![
            throughput(),
            cores(),
            gateways(),
            qualities(),
            hostile(),
            crowded(),
            extremes(),
            unequal(),
            nothing(),
        ],
        machine: machine(),
        version: "0.1.0".to_owned(),
        command: "convoy bench report --quick --out report".to_owned(),
        started: "2026-01-02T03:04:05Z".to_owned(),
        complete: false,
        left_out: vec![
            LeftOut::new("DPDK's devices", "no device is bound to a driver that DPDK can use"),
            LeftOut::new(HOSTILE, HOSTILE),
        ],
        errors: vec![format!("one burst of 9,000 failed to authenticate: {HOSTILE}")],
    }
}

fn headline() -> Vec<Headline> {
    let one = |what: &str, value: &str, goal: Option<(&str, bool)>| Headline {
        what: what.to_owned(),
        value: value.to_owned(),
        spread: "1.40 to 1.47".to_owned(),
        about: "intel-ipsec-mb's time in Convoy's".to_owned(),
        asked: goal.map(|(asked, _)| asked.to_owned()),
        is_reached: goal.map(|(_, is_reached)| is_reached),
        figure: Some("F1".to_owned()),
    };
    vec![
        one("AES-128-GCM, 64 B, seal", "1.43", Some(("at least 1.30", true))),
        one("AES-256-GCM, 1,420 B, seal", "1.02", Some(("at least 1.05", false))),
        one("ChaCha20-Poly1305, IMIX, open", "2.31", Some(("at least 1.50", true))),
        Headline { figure: None, spread: String::new(), ..one(HOSTILE, "12,345,678", None) },
    ]
}

fn machine() -> Machine {
    let peer = |who: &str, version: &str, tier: Option<&str>| PeerVersion {
        who: who.to_owned(),
        version: version.to_owned(),
        tier: tier.map(str::to_owned),
    };
    Machine {
        cpu: "Example Processor 9000 @ 2.40GHz (GenuineIntel family 6 model 106 stepping 6)"
            .to_owned(),
        class: Some(Class::BIntel),
        tiers: ["portable", "aesni", "avx2", "vaes512"].map(str::to_owned).to_vec(),
        denied: None,
        tsc_mhz: 2400.0,
        clock_mhz: Some(3100.4),
        governor: None,
        processors: vec![0, 1, 2, 3, 8, 9, 10, 11],
        siblings: vec![vec![0, 8], vec![1, 9], vec![2, 10], vec![3, 11]],
        load_before: Some([0.02, 0.1, 0.24]),
        load_after: None,
        kernel: "6.12.0-example".to_owned(),
        peers: vec![
            peer("ipsec-mb", "1.5, avx512-t2", Some("vaes512")),
            peer("openssl", "OpenSSL 3.0.17", None),
        ],
    }
}

/// A figure without anything in it.
fn figure(id: &str, title: &str, charts: Vec<Chart>) -> Figure {
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: "What one sees here is made up. Higher is better, and bands reach from the lower quartile to \
                  the upper one."
            .to_owned(),
        command: format!("convoy bench report --only {id}"),
        charts,
        studied: Vec::new(),
        goals: Vec::new(),
        notes: Vec::new(),
        left_out: Vec::new(),
    }
}

fn chart(heading: &str, kind: Kind) -> Chart {
    Chart { heading: heading.to_owned(), kind }
}

fn axis(label: &str, unit: &str, scale: Scale) -> Axis {
    Axis { scale, ..Axis::linear(label, unit) }
}

/// A value with a spread of `share` to both sides.
fn spread(middle: f64, share: f64) -> Value {
    Value { middle, low: middle * (1.0 - share), high: middle * (1.0 + share * 0.7) }
}

fn line(name: &str, role: Role, dots: impl IntoIterator<Item = (f64, Value)>) -> Line {
    let dots = dots.into_iter().map(|(x, y)| Dot { x, y }).collect();
    Line { name: name.to_owned(), role, dots }
}

const SIZES: [f64; 6] = [64.0, 128.0, 256.0, 512.0, 1024.0, 1420.0];

fn throughput() -> Figure {
    let grows = |most: f64, half: f64, share: f64| {
        SIZES.map(|size| (size, spread(most * size / (size + half), share)))
    };
    let chart_of = |suite: &str, speed: f64| {
        let series = vec![
            line("Convoy", Role::Convoy, grows(52.0 * speed, 300.0, 0.04)),
            line("Convoy, AVX2", Role::Base, grows(21.0 * speed, 240.0, 0.05)),
            line("intel-ipsec-mb", Role::Peer, grows(47.0 * speed, 420.0, 0.06)),
            line("OpenSSL", Role::Peer, grows(36.0 * speed, 900.0, 0.03)),
            line("line fitted to Convoy's", Role::Computed, grows(52.5 * speed, 305.0, 0.0)),
        ];
        let x = axis("frame size", "bytes", Scale::Logarithmic);
        chart(suite, Kind::Lines(Lines { x, y: Axis::linear("throughput", "Gb/s"), series }))
    };
    let studied = |what: &str, ours: Option<&str>| Studied {
        what: what.to_owned(),
        theirs: "4.6 cycles a byte".to_owned(),
        ours: ours.map(str::to_owned),
    };
    let goal = |what: &str, is_reached| Verdict {
        what: what.to_owned(),
        asked: "at least 1.30".to_owned(),
        measured: "1.43 (1.40 to 1.47)".to_owned(),
        is_reached,
    };
    Figure {
        studied: vec![
            studied("AES-128-GCM at 64 bytes", Some("1.9 cycles a byte")),
            studied("AES-128-GCM at 9,000 bytes", None),
        ],
        goals: vec![
            goal("64 bytes beside intel-ipsec-mb", true),
            goal("1,420 bytes beside it", false),
        ],
        notes: vec![
            "All keys are used in turn, so that none stays in the nearest cache.".to_owned(),
            "OpenSSL is called for one packet at a time.".to_owned(),
        ],
        left_out: vec![LeftOut::new("AWS-LC", "this build has no feature peer-aws-lc")],
        ..figure(
            "F1",
            "Throughput against frame size",
            vec![chart_of("AES-128-GCM", 1.0), chart_of("AES-256-GCM", 0.83)],
        )
    }
}

fn cores() -> Figure {
    let scales = |one: f64, loss: f64| {
        [1.0, 2.0, 4.0, 8.0].map(|n: f64| (n, spread(one * n * (1.0 - loss * n), 0.08)))
    };
    let series = vec![
        line("Convoy", Role::Convoy, scales(9.4, 0.01)),
        line("a driver that does no work", Role::Base, scales(12.1, 0.005)),
        line("kernel", Role::Peer, scales(2.2, 0.04)),
    ];
    let x = Axis::linear("cores", "");
    let lines = Lines { x, y: Axis::linear("throughput", "Gb/s"), series };
    figure("F2", "Throughput against the number of cores", vec![chart("", Kind::Lines(lines))])
}

fn bar(name: &str, role: Role, values: &[Option<Value>]) -> Bar {
    Bar { name: name.to_owned(), role, values: values.to_vec() }
}

fn gateways() -> Figure {
    let some = |values: [f64; 3]| values.map(|value| Some(spread(value, 0.07)));
    let series = vec![
        bar("Convoy", Role::Convoy, &some([1.42, 6.3, 9.8])),
        bar("Convoy, portable tier", Role::Base, &some([0.31, 0.9, 1.2])),
        bar("strongSwan with the kernel", Role::Peer, &some([0.52, 2.1, 3.4])),
        bar(LONG, Role::Peer, &[Some(spread(0.9, 0.2)), None, Some(spread(4.0, 0.5))]),
    ];
    let groups = ["64 bytes", "IMIX: 7 frames of 64 bytes, 4 of 570 and 1 of 1,420", "1,420 bytes"];
    let groups = groups.map(str::to_owned).to_vec();
    let bars = Bars { y: Axis::linear("throughput without loss", "Gb/s"), groups, series };
    let one = Bars {
        y: Axis::linear("cost of a packet", "cycles"),
        groups: ["receive", "look up", "decrypt", "send"].map(str::to_owned).to_vec(),
        series: vec![bar(
            "Convoy",
            Role::Convoy,
            &[80.0, 45.5, 612.0, 130.0].map(|v| Some(Value::exact(v))),
        )],
    };
    let charts = vec![chart("All gateways", Kind::Bars(bars)), chart("Stages", Kind::Bars(one))];
    figure("F3", "Gateways beside each other", charts)
}

fn radar(labels: &[&str], things: &[(&str, Role)]) -> Radar {
    let quality = |(n, label): (usize, &&str)| Quality {
        label: (*label).to_owned(),
        judged: (n == 3).then(|| "by the steps that its manual asks for".to_owned()),
    };
    let polygon = |(at, (name, role)): (usize, &(&str, Role))| {
        let share = |n: usize| (n + at != 4).then(|| 1.0 - ((n * 7 + at * 5) % 11) as f64 / 13.0);
        let shares: Vec<_> = (0..labels.len()).map(share).collect();
        let values = shares.iter().map(|share| match share {
            Some(share) => format!("{:.1} Gb/s", share * 10.0),
            None => "not measured".to_owned(),
        });
        Polygon { name: (*name).to_owned(), role: *role, values: values.collect(), shares }
    };
    Radar {
        axes: labels.iter().enumerate().map(quality).collect(),
        series: things.iter().enumerate().map(polygon).collect(),
    }
}

fn qualities() -> Figure {
    let things = [("Convoy", Role::Convoy), ("strongSwan", Role::Peer), ("WireGuard", Role::Peer)];
    let few = [
        "throughput",
        "latency at half load",
        "cost of a handshake",
        "ease of set-up",
        "memory for 10,000 tunnels",
        "recovery",
    ];
    let many = [
        "throughput of small frames",
        "throughput of large frames",
        "latency",
        "set-up",
        "memory",
        "handshakes a second",
        "cores",
        "recovery",
        "leaks",
        LONG,
    ];
    let charts = vec![
        chart("Six qualities", Kind::Radar(radar(&few, &things))),
        chart("Ten qualities", Kind::Radar(radar(&many, &things[..2]))),
        chart("One quality", Kind::Radar(radar(&few[..1], &things))),
    ];
    figure("F4", "Several qualities at once", charts)
}

fn hostile() -> Figure {
    let text = || HOSTILE.to_owned();
    let axis = |scale| Axis { label: text(), unit: text(), scale };
    let lines = Lines {
        x: axis(Scale::Linear),
        y: axis(Scale::Linear),
        series: vec![line(
            HOSTILE,
            Role::Peer,
            [(1.0, Value::exact(2.0)), (2.0, Value::exact(2.0))],
        )],
    };
    let bars = Bars {
        y: axis(Scale::Linear),
        groups: vec![text(), text()],
        series: vec![
            bar(HOSTILE, Role::Base, &[Some(Value::exact(3.0))]),
            bar(HOSTILE, Role::Peer, &[]),
        ],
    };
    let axes = vec![Quality { label: text(), judged: Some(text()) }; 4];
    let polygon = Polygon {
        name: text(),
        role: Role::Peer,
        shares: vec![Some(0.5); 4],
        values: vec![text(); 4],
    };
    let charts = vec![
        chart(HOSTILE, Kind::Lines(lines)),
        chart(HOSTILE, Kind::Bars(bars)),
        chart(HOSTILE, Kind::Radar(Radar { axes, series: vec![polygon] })),
    ];
    Figure {
        id: format!("F5{HOSTILE}"),
        title: text(),
        caption: text(),
        command: text(),
        charts,
        studied: vec![Studied { what: text(), theirs: text(), ours: Some(text()) }],
        goals: vec![Verdict { what: text(), asked: text(), measured: text(), is_reached: false }],
        notes: vec![text()],
        left_out: vec![LeftOut::new(text(), text())],
    }
}

fn crowded() -> Figure {
    let roles = [Role::Convoy, Role::Convoy, Role::Base];
    let named = |n: usize| format!("series {} of twelve", n + 1);
    let role = |n: usize| roles.get(n).copied().unwrap_or(Role::Peer);
    let lines = (0..12).map(|n| {
        let dots = SIZES.map(|size| (size, spread(size.sqrt() * (1.0 + n as f64 / 3.0), 0.05)));
        line(&named(n), role(n), dots)
    });
    let x = axis("frame size", "bytes", Scale::Logarithmic);
    let y = axis("time", "ns", Scale::Logarithmic);
    let lines = Lines { x, y, series: lines.collect() };
    let bars = (0..12).map(|n| {
        bar(&named(n), role(n), &[Some(spread(12.0 - n as f64, 0.1)), Some(spread(n as f64, 0.1))])
    });
    let groups = ["seal", "open"].map(str::to_owned).to_vec();
    let bars = Bars { y: Axis::linear("cost", "cycles a byte"), groups, series: bars.collect() };
    let charts =
        vec![chart("Twelve lines", Kind::Lines(lines)), chart("Twelve bars", Kind::Bars(bars))];
    figure("F6", "Many series", charts)
}

fn extremes() -> Figure {
    let lines = |scale, series| {
        Kind::Lines(Lines {
            x: axis("load", "packets a second", scale),
            y: axis("latency", "s", scale),
            series,
        })
    };
    let point = vec![line("one point", Role::Convoy, [(1000.0, spread(0.25, 0.3))])];
    let equal = vec![
        line("equal values", Role::Convoy, SIZES.map(|size| (size, Value::exact(7.0)))),
        line("zero", Role::Peer, SIZES.map(|size| (size, Value::exact(0.0)))),
    ];
    let far = vec![
        line("large", Role::Convoy, [(1e3, Value::exact(2.5e18)), (1e9, Value::exact(7.5e18))]),
        line("small", Role::Peer, [(1e-7, Value::exact(3e-11)), (1e12, Value::exact(2e-9))]),
        line(
            "no numbers",
            Role::Peer,
            [(f64::NAN, Value::exact(1.0)), (1.0, Value::exact(f64::INFINITY))],
        ),
    ];
    let small =
        vec![line("small", Role::Convoy, [(1e-7, Value::exact(3e-11)), (4e-7, spread(2e-9, 0.2))])];
    let bars = Bars {
        y: axis("handshakes", "a second", Scale::Logarithmic),
        groups: vec!["".to_owned()],
        series: vec![
            bar("most", Role::Convoy, &[Some(spread(3.2e8, 0.6))]),
            bar("few", Role::Peer, &[Some(spread(0.004, 0.5))]),
        ],
    };
    let charts = vec![
        chart("A single point", lines(Scale::Linear, point)),
        chart("Equal values", lines(Scale::Linear, equal)),
        chart("Far apart", lines(Scale::Logarithmic, far)),
        chart("Small", lines(Scale::Linear, small)),
        chart("Bars by powers", Kind::Bars(bars)),
    ];
    figure("F7", "Few values, and great and small ones", charts)
}

fn unequal() -> Figure {
    let series = vec![
        bar(
            "less than before",
            Role::Convoy,
            &[Some(Value { middle: -3.0, low: -4.0, high: -2.5 })],
        ),
        bar("more than before", Role::Peer, &[Some(spread(2.0, 0.4))]),
    ];
    let bars =
        Bars { y: Axis::linear("difference", "ns"), groups: vec!["one tunnel".to_owned()], series };
    figure("F8", "Differences on both sides of zero", vec![chart("", Kind::Bars(bars))])
}

fn nothing() -> Figure {
    let x = axis("frame size", "bytes", Scale::Logarithmic);
    let lines = Lines { x, y: Axis::linear("throughput", "Gb/s"), series: Vec::new() };
    let bars = Bars {
        y: Axis::linear("throughput", "Gb/s"),
        groups: vec!["IMIX".to_owned()],
        series: vec![bar("Convoy", Role::Convoy, &[None])],
    };
    let radar = Radar { axes: Vec::new(), series: Vec::new() };
    let charts = vec![
        chart("No line", Kind::Lines(lines)),
        chart("No bar", Kind::Bars(bars)),
        chart("No spoke", Kind::Radar(radar)),
    ];
    figure("F9", "Nothing was measured", charts)
}
