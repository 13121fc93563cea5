//! Building blocks of drawings: two sizes, text that is measured before it is drawn, shapes with classes.
//!
//! The library escapes text, but no quotes in attributes: those are of this module's callers alone, never of a figure.

use svg::Document;
use svg::node::element::path::Data;
use svg::node::element::{Element, Group, Line, Path, Rectangle, Text, Title};
use svg::node::{Node, Value};

/// A size in which each chart is drawn; the page shows the one that fits the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// For screens of some width, and paper.
    Wide,
    /// For phones.
    Narrow,
}

impl Size {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Wide, Self::Narrow];

    /// The class of its drawings.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }

    /// Width in units of the drawing.
    pub(super) const fn width(self) -> f64 {
        match self {
            Self::Wide => 760.0,
            Self::Narrow => 320.0,
        }
    }

    /// Size of text in the same units.
    pub(super) const fn font(self) -> f64 {
        match self {
            Self::Wide => 13.0,
            Self::Narrow => 13.0,
        }
    }

    /// Height of a line of text.
    pub(super) const fn line(self) -> f64 {
        match self {
            Self::Wide => 17.0,
            Self::Narrow => 16.0,
        }
    }
}

/// Part of a text that lies at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing, from left above.
#[derive(Debug)]
pub(super) struct Canvas {
    size: Size,
    shapes: Group,
}

impl Canvas {
    pub(super) fn new(size: Size) -> Self {
        Self { size, shapes: Group::new() }
    }

    /// A shape on top of all others.
    pub(super) fn add(&mut self, shape: impl Node) {
        self.shapes.append(shape);
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let line = Line::new().set("class", class);
        let line = line.set("x1", place(from.0)).set("y1", place(from.1));
        self.add(line.set("x2", place(to.0)).set("y2", place(to.1)));
    }

    /// A polygon with these corners.
    pub(super) fn polygon(&mut self, class: &str, points: &[(f64, f64)]) {
        self.add(polygon(class, points));
    }

    /// A line of text whose baseline is at `at`.
    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let shape = Text::new(text).set("x", place(at.0)).set("y", place(at.1));
        self.add(shape.set("class", class).set("text-anchor", anchor));
    }

    /// The drawing as an element of a page, of the given height. It says `title` and `about` to who cannot see it, by
    /// elements whose identifiers begin with `id`.
    pub(super) fn finish(self, id: &str, title: &str, about: &str, height: f64) -> String {
        let (id, size) = (format!("{id}-{}", self.size.class()), self.size);
        let about_id = format!("{id}-about");
        let mut description = Element::new("desc");
        description.assign("id", about_id.as_str());
        description.append(svg::node::Text::new(about));
        let document = Document::new()
            .set("class", format!("drawing {}", size.class()))
            .set("role", "img")
            .set("aria-labelledby", id.as_str())
            .set("aria-describedby", about_id)
            .set("viewBox", (0.0, 0.0, size.width(), place(height)))
            .set("font-size", size.font())
            .add(Title::new(title).set("id", id))
            .add(description)
            .add(self.shapes);
        document.to_string()
    }
}

pub(super) fn rectangle(class: &str, from: (f64, f64), size: (f64, f64)) -> Rectangle {
    let shape = Rectangle::new().set("class", class);
    let shape = shape.set("x", place(from.0)).set("y", place(from.1));
    shape.set("width", place(size.0)).set("height", place(size.1))
}

/// A path of straight lines through `points`, and back to the first.
pub(super) fn polygon(class: &str, points: &[(f64, f64)]) -> Path {
    path(class, through(points).close())
}

/// A path of straight lines through `points`.
pub(super) fn polyline(class: &str, points: &[(f64, f64)]) -> Path {
    path(class, through(points))
}

fn through(points: &[(f64, f64)]) -> Data {
    let mut data = Data::new();
    for (n, point) in points.iter().enumerate() {
        let at = (place(point.0) as f32, place(point.1) as f32);
        data = if n == 0 { data.move_to(at) } else { data.line_to(at) };
    }
    data
}

fn path(class: &str, data: Data) -> Path {
    Path::new().set("class", class).set("d", Value::from(data))
}

/// Shapes that belong together.
pub(super) fn group(class: &str) -> Group {
    Group::new().set("class", class)
}

/// Shapes that show a text where a pointer rests on them.
pub(super) fn told(text: &str, class: &str) -> Group {
    group(class).add(Title::new(text))
}

/// A tenth of a unit is as fine as anybody sees; never `-0`.
pub(super) fn place(at: f64) -> f64 {
    (at * 10.0).round() / 10.0 + 0.0
}

/// Greatest width of `text` in the usual fonts, in text of size `font`.
pub(super) fn text_width(text: &str, font: f64) -> f64 {
    text.chars().map(|letter| letter_width(letter) * font).sum()
}

/// Of DejaVu Sans, the widest of the fonts that systems have for their own, or a little more.
const fn letter_width(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '\'' | '|' | ' ' | ',' | '.' | ':' | ';' | 'I' | '-' => 0.36,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '\\' | '!' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '&' => 1.0,
        'A'..='Z' | '<' | '>' | '+' | '=' | '~' | '×' | '_' => 0.84,
        '⁰'..='⁹' | '⁻' | '¹' | '²' | '³' => 0.5,
        '\0'..='ÿ' => 0.65,
        _ => 1.05,
    }
}

/// `text` in lines of at most `width`; a word that is wider goes on in the next line.
pub(super) fn wrapped(text: &str, width: f64, font: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        let gap = if last.is_empty() { "" } else { " " };
        let joined = format!("{last}{gap}{word}");
        if text_width(&joined, font) <= width {
            *last = joined;
            continue;
        }
        if !last.is_empty() {
            lines.push(String::new());
        }
        for letter in word.chars() {
            let last = lines.last_mut().expect("there is always a line");
            if !last.is_empty() && text_width(last, font) + letter_width(letter) * font > width {
                lines.push(letter.to_string());
            } else {
                last.push(letter);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_lose_no_letter() {
        let text =
            "AES-128-GCM sealed in place with-a-word-that-is-far-wider-than-any-line and more";
        for width in [20.0, 80.0, 200.0, 2000.0] {
            let lines = wrapped(text, width, 12.0);
            assert!(lines.iter().all(|line| text_width(line, 12.0) <= width), "{width} {lines:?}");
            let letters = |text: &str| text.replace(' ', "");
            assert_eq!(letters(&lines.concat()), letters(text));
        }
        assert_eq!(wrapped("two words", 2000.0, 12.0), ["two words"]);
        assert_eq!(wrapped("", 100.0, 12.0), [""]);
    }

    #[test]
    fn a_drawing_is_named_and_escapes_what_it_says() {
        let mut canvas = Canvas::new(Size::Narrow);
        canvas.text("label", (1.04, -0.04), Anchor::End, "a < b & \"c\"");
        let text = canvas.finish("F1-1", "<b>", "\"&", 100.0);
        assert!(text.contains("&lt;b&gt;") && text.contains("a &lt; b &amp;"), "{text}");
        assert!(
            text.contains("aria-labelledby=\"F1-1-narrow\"") && text.contains("x=\"1\" y=\"0\""),
            "{text}"
        );
        assert!(text.contains("viewBox=\"0 0 320 100\""), "{text}");
    }
}
