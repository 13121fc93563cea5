//! Axes: where values lie, and the marks between which a reader finds them.

use super::canvas::text_width;
use crate::chart::{Scale, Value};

/// Values beyond it are not drawn: sums of them would overflow.
const GREATEST: f64 = 1e300;
/// Spans below it count as nothing.
const LEAST: f64 = 1e-290;
/// Spans of up to so many doublings have marks at powers of 2, wider ones at powers of 10.
const OCTAVES: f64 = 11.0;

/// An axis with its marks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Marks {
    scale: Scale,
    /// The value at its beginning.
    pub(super) low: f64,
    /// The value at its end.
    pub(super) high: f64,
    /// Values with a mark, and what stands there.
    pub(super) ticks: Vec<(f64, String)>,
}

/// True if `value` can be drawn at `scale`.
pub(super) fn is_drawable(scale: Scale, value: f64) -> bool {
    value.is_finite() && value.abs() < GREATEST && (scale == Scale::Linear || value > LEAST)
}

/// `value` with quartiles that can be drawn, if its middle can.
pub(super) fn drawable(scale: Scale, value: Value) -> Option<Value> {
    let Value { middle, low, high } = value;
    let or_middle = |edge: f64| if is_drawable(scale, edge) { edge } else { middle };
    is_drawable(scale, middle).then(|| Value { middle, low: or_middle(low), high: or_middle(high) })
}

impl Marks {
    /// About `most` marks for `values`, all of which can be drawn; none where there are no values.
    pub(super) fn new(scale: Scale, values: &[f64], most: usize) -> Option<Self> {
        let least = values.iter().copied().reduce(f64::min)?;
        let greatest = values.iter().copied().reduce(f64::max)?;
        Some(match scale {
            Scale::Linear => Self::linear(values, least.min(0.0), greatest.max(0.0), most),
            Scale::Logarithmic => Self::logarithmic(values, least, greatest, most),
        })
    }

    /// As many marks as have room side by side in `width`, in text of size `font`.
    pub(super) fn across(scale: Scale, values: &[f64], width: f64, font: f64) -> Option<Self> {
        let has_room = |marks: &Self| {
            let widest = marks.widest(font);
            let places: Vec<f64> = marks.ticks.iter().map(|(at, _)| marks.at(*at, width)).collect();
            places.windows(2).all(|pair| pair[1] - pair[0] >= widest + font)
        };
        let choices = (2..=9).rev().filter_map(|most| Self::new(scale, values, most));
        choices.into_iter().find(has_room).or_else(|| Self::new(scale, values, 1))
    }

    /// Steps of 1, 2 or 5 times a power of ten, from zero or below to the greatest value or above.
    fn linear(values: &[f64], low: f64, high: f64, most: usize) -> Self {
        let high = if high - low < LEAST { low + 1.0 } else { high };
        let rough = (high - low) / most.max(1) as f64;
        let power = 10_f64.powi(rough.log10().floor() as i32);
        let nice = [1.0, 2.0, 5.0].into_iter().find(|nice| nice * power >= rough * 0.999_999);
        let step = nice.unwrap_or(10.0) * power;
        let are_whole = values.iter().all(|value| value.fract() == 0.0);
        let step = if are_whole { step.max(1.0) } else { step };
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let digits = (-(step.log10() + 1e-9).floor()).clamp(0.0, 300.0) as usize;
        let tick = |n: i64| {
            let at = n as f64 * step;
            (at, tick_text(at, digits))
        };
        let ticks = (first as i64..=last as i64).map(tick).collect();
        Self { scale: Scale::Linear, low: first * step, high: last * step, ticks }
    }

    /// Powers of 2 or 10, from the least value or below to the greatest or above.
    fn logarithmic(values: &[f64], least: f64, greatest: f64, most: usize) -> Self {
        let is_power = |value: &f64| value.log2().fract() == 0.0;
        let is_binary = greatest / least <= OCTAVES.exp2() || values.iter().all(is_power);
        let (base, logarithm): (f64, fn(f64) -> f64) =
            if is_binary { (2.0, f64::log2) } else { (10.0, f64::log10) };
        let mut first = (logarithm(least) + 1e-9).floor() as i32;
        let mut last = (logarithm(greatest) - 1e-9).ceil() as i32;
        if first >= last {
            (first, last) = (first - 1, first + 1);
        }
        let stride = (last - first).unsigned_abs().div_ceil(most.max(1) as u32).max(1);
        let tick = |power: i32| {
            let at = base.powi(power);
            let digits = (-at.log10().floor()).clamp(0.0, 300.0) as usize;
            // A power of 2 below one has as many decimals as its exponent says.
            let digits = if is_binary { (-power).clamp(0, 300) as usize } else { digits };
            (at, tick_text(at, digits))
        };
        let ticks = (first..=last).step_by(stride as usize).map(tick).collect();
        Self { scale: Scale::Logarithmic, low: base.powi(first), high: base.powi(last), ticks }
    }

    /// Position of `value` on an axis of that length.
    pub(super) fn at(&self, value: f64, length: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        share * length
    }

    /// Width of the widest mark's text.
    pub(super) fn widest(&self, font: f64) -> f64 {
        self.ticks.iter().map(|(_, text)| text_width(text, font)).fold(0.0, f64::max)
    }
}

/// A mark's value, with all its `digits` behind the point; as a power of ten where that is long.
fn tick_text(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() >= 1e7 || digits > 5 {
        return power_text(value);
    }
    grouped(&format!("{value:.digits$}"))
}

/// A value in few characters, to three digits.
pub(super) fn short(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e7).contains(&value.abs()) {
        return power_text(value);
    }
    crate::chart::number(value)
}

/// Such as `2.5×10⁷`.
fn power_text(value: f64) -> String {
    let text = format!("{value:.2e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    let raised: String = power
        .chars()
        .map(|digit| match digit.to_digit(10) {
            Some(digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit as usize).unwrap_or(' '),
            None => '⁻',
        })
        .collect();
    match digits {
        "1" => format!("10{raised}"),
        _ => format!("{digits}×10{raised}"),
    }
}

/// A number's text with commas between thousands.
fn grouped(text: &str) -> String {
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, values: &[f64], most: usize) -> Vec<String> {
        let marks = Marks::new(scale, values, most).unwrap();
        marks.ticks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_marks_are_round_and_begin_at_zero() {
        for (values, expected) in [
            (&[3.7, 9.2][..], &["0", "2", "4", "6", "8", "10"][..]),
            (&[0.31, 0.9], &["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (&[4300.0], &["0", "1,000", "2,000", "3,000", "4,000", "5,000"]),
            (&[1.0, 2.0, 3.0], &["0", "1", "2", "3"]),
            (&[-3.0, 4.0], &["-4", "-2", "0", "2", "4"]),
            (&[0.0], &["0", "1"]),
            (&[2.1e9], &["0", "5×10⁸", "10⁹", "1.5×10⁹", "2×10⁹", "2.5×10⁹"]),
            (&[0.000_002], &["0", "5×10⁻⁷", "10⁻⁶", "1.5×10⁻⁶", "2×10⁻⁶"]),
        ] {
            assert_eq!(texts(Scale::Linear, values, 5), expected, "{values:?}");
        }
    }

    #[test]
    fn logarithmic_marks_are_powers_around_all_values() {
        for (values, expected) in [
            (&[64.0, 1420.0][..], &["64", "128", "256", "512", "1,024", "2,048"][..]),
            (&[0.3, 1.5], &["0.25", "0.5", "1", "2"]),
            (&[0.002, 900.0], &["0.001", "0.01", "0.1", "1", "10", "100", "1,000"]),
            (&[5.0, 5.0], &["4", "8"]),
            (&[4.0], &["2", "4", "8"]),
            (&[1.0, 65_536.0], &["1", "8", "64", "512", "4,096", "32,768"]),
        ] {
            assert_eq!(texts(Scale::Logarithmic, values, 6), expected, "{values:?}");
        }
    }

    #[test]
    fn values_lie_between_the_ends() {
        let marks = Marks::new(Scale::Logarithmic, &[64.0, 1024.0], 6).unwrap();
        assert_eq!(marks.at(64.0, 100.0), 0.0);
        assert!((marks.at(256.0, 100.0) - 50.0).abs() < 1e-9);
        assert_eq!(marks.at(1e9, 100.0), 100.0);
        let marks = Marks::new(Scale::Linear, &[10.0], 5).unwrap();
        assert_eq!(marks.at(5.0, 100.0), 50.0);
    }

    #[test]
    fn no_value_of_a_double_ends_in_nothing_drawn_or_a_panic() {
        assert_eq!(Marks::new(Scale::Linear, &[], 5), None);
        for value in [f64::MIN_POSITIVE, 5e-324, 1e-280, 1e-9, 1.0, 1e18, 9e299] {
            for scale in [Scale::Linear, Scale::Logarithmic] {
                if is_drawable(scale, value) {
                    let marks = Marks::across(scale, &[value, value * 0.5], 600.0, 13.0).unwrap();
                    assert!(marks.at(value, 600.0).is_finite(), "{value:e} {scale:?} {marks:?}");
                    assert!((1..=12).contains(&marks.ticks.len()), "{value:e} {marks:?}");
                }
            }
        }
        for value in [f64::NAN, f64::INFINITY, -f64::INFINITY, f64::MAX] {
            assert!(!is_drawable(Scale::Linear, value));
        }
        assert!(!is_drawable(Scale::Logarithmic, 0.0));
    }

    #[test]
    fn marks_across_have_room() {
        let values = [64.0, 16_384.0];
        let wide = Marks::across(Scale::Logarithmic, &values, 600.0, 13.0).unwrap();
        let narrow = Marks::across(Scale::Logarithmic, &values, 240.0, 12.0).unwrap();
        assert_eq!(wide.ticks.len(), 9);
        assert!(narrow.ticks.len() < 6, "{narrow:?}");
    }

    #[test]
    fn short_texts_stay_short() {
        for (value, text) in
            [(0.0, "0"), (12.345, "12.3"), (1.5e9, "1.5×10⁹"), (1e-7, "10⁻⁷"), (-2e30, "-2×10³⁰")]
        {
            assert_eq!(short(value), text);
        }
    }
}
