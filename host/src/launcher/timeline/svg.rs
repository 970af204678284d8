//! A timeline as a picture: for each rank some of its CTAs from top to bottom, time from left to right.

use std::collections::BTreeMap;
use std::fmt::Write;

use entwine_device::log::Recorder;
use svg::Document;
use svg::node::element::{Line, Path, Rectangle, Text};

use super::slices::computes;
use super::{Activity, Timeline};

/// CTAs of a rank that are drawn.
const CTAS: usize = 24;
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 70.0;
/// A CTA's lanes: what computes above, what communicates below.
const LANES: [f64; 2] = [6.0, 3.0];
const LANE_GAP: f64 = 1.0;
const CTA_GAP: f64 = 2.0;
const RANK_GAP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// Pixels that are neither drawn apart nor on their own.
const LEAST: f64 = 0.25;
const TEXT: &str = "#24292f";
const FAINT: &str = "#d0d7de";
/// Told apart with any colour vision.
const COLOURS: [(Activity, &str, &str); 4] = [
    (Activity::Multiply, "#0072b2", "multiply"),
    (Activity::Work, "#56b4e9", "other work on a tile"),
    (Activity::Wait, "#d55e00", "wait"),
    (Activity::Communicate, "#009e73", "fetch, store and signal (lower lane)"),
];

/// Spans of one activity in one lane, in pixels from the left.
type Spans = Vec<(f64, f64)>;

impl Timeline {
    /// The record as a picture (SVG), 1000 units wide, with a background of its own. Of many CTAs some are left out.
    pub fn to_svg(&self) -> String {
        let scale = (WIDTH - LEFT - RIGHT) / self.end().max(1) as f64;
        let ranks: Vec<_> = (0..self.world()).map(|rank| self.shown_ctas(rank, CTAS)).collect();
        let cta_height = LANES[0] + LANE_GAP + LANES[1] + CTA_GAP;
        let notes = self.clock_notes();
        let rows: usize = ranks.iter().map(Vec::len).sum();
        let body = rows as f64 * cta_height + (ranks.len().saturating_sub(1)) as f64 * RANK_GAP;
        let height = TOP + body + BOTTOM;
        let mut picture = Document::new()
            .set("viewBox", (0, 0, WIDTH, height))
            .set("width", WIDTH)
            .set("height", height)
            .set("font-family", "sans-serif")
            .set("font-size", 13)
            .add(Rectangle::new().set("width", "100%").set("height", "100%").set("rx", 6).set("fill", "#ffffff"))
            .add(text(LEFT, 22.0, &self.title()).set("font-size", 15).set("font-weight", "bold"));
        let mut x = LEFT;
        for (_, colour, name) in COLOURS {
            picture = picture.add(bar(x, 34.0, 12.0, 12.0).set("fill", colour)).add(text(x + 17.0, 44.5, name));
            x += 44.0 + 7.2 * name.len() as f64;
        }
        for (at, label) in self.ticks() {
            let x = LEFT + at as f64 * scale;
            let line =
                Line::new().set("x1", px(x)).set("x2", px(x)).set("y1", TOP - 8.0).set("y2", px(TOP + body + 4.0));
            picture = picture
                .add(line.set("stroke", FAINT))
                .add(text(x, TOP + body + 18.0, &label).set("text-anchor", "middle").set("font-size", 12));
        }
        let mut y = TOP;
        for (rank, ctas) in (0..).zip(&ranks) {
            picture = picture.add(text(12.0, y + 11.0, &format!("rank {rank}")).set("font-weight", "bold"));
            picture = picture.add(text(12.0, y + 26.0, &self.cta_note(rank, ctas.len())).set("font-size", 11));
            let lanes: BTreeMap<_, _> = ctas.iter().zip(0..).map(|(cta, index)| (*cta, index)).collect();
            for (activity, colour, _) in COLOURS {
                let mut shape = String::new();
                for ((index, lane), spans) in self.spans(rank, activity, &lanes, scale) {
                    let top = y + index as f64 * cta_height + if lane == 0 { 0.0 } else { LANES[0] + LANE_GAP };
                    for (from, to) in spans {
                        let (from, width) = (px(LEFT + from), px((to - from).max(LEAST)));
                        let _ = write!(shape, "M{from} {}h{width}v{}h-{width}z", px(top), LANES[lane]);
                    }
                }
                if !shape.is_empty() {
                    picture = picture.add(Path::new().set("fill", colour).set("d", shape));
                }
            }
            y += ctas.len() as f64 * cta_height + RANK_GAP;
        }
        picture.add(text(LEFT, height - 8.0, &notes.join(" ")).set("font-size", 11)).to_string()
    }

    fn title(&self) -> String {
        let ranks = self.world();
        let plural = if ranks == 1 { "" } else { "s" };
        format!("{}: {:.1} µs on {ranks} rank{plural}", self.kernel.name, self.end() as f64 / 1e3)
    }

    fn cta_note(&self, rank: u32, shown: usize) -> String {
        let all = self.shown_ctas(rank, usize::MAX).len();
        if shown == all { format!("{all} CTAs") } else { format!("{shown}/{all} CTAs") }
    }

    /// Round times for the axis, with their labels.
    fn ticks(&self) -> Vec<(u64, String)> {
        let end = self.end();
        let steps = (0..).flat_map(|power| [1, 2, 5].map(|factor| factor * 10u64.pow(power)));
        let step = steps.take(54).find(|step| end / step <= 10).unwrap_or(u64::MAX);
        (0..=end / step).map(|index| (index * step, format!("{} µs", (index * step) as f64 / 1e3))).collect()
    }

    /// When the shown CTAs of a rank did this, by the CTA's place and lane. What lies too close together to be seen apart
    /// is one span. Waits of what only moves tiles are left out: they hold nothing up.
    fn spans(
        &self,
        rank: u32,
        activity: Activity,
        ctas: &BTreeMap<u32, usize>,
        scale: f64,
    ) -> BTreeMap<(usize, usize), Spans> {
        let mut lanes: BTreeMap<_, Spans> = BTreeMap::new();
        for slice in self.slices().filter(|slice| slice.event.rank == rank && slice.activity == activity) {
            let lane = match slice.event.recorder {
                recorder if computes(recorder) => 0,
                Recorder::Loader => continue,
                _ if activity == Activity::Wait => continue,
                _ => 1,
            };
            let Some(index) = ctas.get(&slice.event.cta) else { continue };
            let (from, to) = (slice.event.at as f64 * scale, slice.end as f64 * scale);
            let spans = lanes.entry((*index, lane)).or_default();
            match spans.last_mut() {
                Some((_, last)) if from - *last < LEAST && from >= *last - LEAST => *last = last.max(to),
                _ => spans.push((from, to)),
            }
        }
        lanes
    }
}

fn text(x: f64, y: f64, content: &str) -> Text {
    Text::new(content).set("x", px(x)).set("y", px(y)).set("fill", TEXT)
}

fn bar(x: f64, y: f64, width: f64, height: f64) -> Rectangle {
    Rectangle::new().set("x", px(x)).set("y", px(y)).set("width", px(width)).set("height", px(height))
}

/// A coordinate, to a hundredth.
fn px(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_picture_has_ranks_a_legend_an_axis_and_what_is_known_of_the_clocks() {
        let svg = two_ranks().to_svg();
        for expected in ["gather_sum: 72000.0 µs on 2 ranks", "rank 1", "wait", "20000 µs", "All ranks have one clock."]
        {
            assert!(svg.contains(expected), "{expected}: {svg}");
        }
        assert_eq!(svg, two_ranks().to_svg(), "equal records give equal pictures");
    }

    #[test]
    fn spans_are_drawn_to_scale() {
        let timeline = two_ranks();
        let ctas = BTreeMap::from([(0, 0)]);
        let spans = timeline.spans(0, Activity::Wait, &ctas, 1e-6);
        assert_eq!(spans, BTreeMap::from([((0, 0), vec![(40.0, 60.0)])]));
        let spans = timeline.spans(0, Activity::Work, &ctas, 1e-6);
        assert_eq!(spans[&(0, 0)], [(0.0, 40.0), (60.0, 72.0)], "two tiles without a pause are one span");
    }
}
