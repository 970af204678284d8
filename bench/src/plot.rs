//! Records as plots: for each operation, model and regime the time over the rows, in units of the limit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use plotters::prelude::*;

use crate::record::Record;

const SIZE: (u32, u32) = (720, 440);
const LIMIT_COLOUR: RGBColor = RGBColor(120, 120, 120);
/// How much of the plot's height is left to the legend, above the points.
const LEGEND_SHARE: f64 = 0.4;
/// Told apart with any colour vision.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A contestant's name, and its points: rows, and its time in units of the limit.
type Series = (String, Vec<(f64, f64)>);

/// Draws a plot for each operation, model and regime of the records into a folder. Returns the files.
///
/// # Errors
/// A file cannot be written.
pub fn draw(records: &[Record], folder: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("couldn't make {}", folder.display()))?;
    let mut plots: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
    for record in records {
        plots.entry((record.op, record.model, record.regime)).or_default().push(record);
    }
    let draw = |((op, model, regime), records): (_, Vec<&Record>)| {
        let file = folder.join(format!("{op}-{model}-{regime}.svg"));
        let world = records[0].world;
        draw_one(&file, &format!("{op}, {model} on {world} GPUs, {regime}"), &series(&records))
            .with_context(|| format!("couldn't draw {}", file.display()))?;
        Ok(file)
    };
    plots.into_iter().map(draw).collect()
}

fn series(records: &[&Record]) -> Vec<Series> {
    let mut series = Vec::<Series>::new();
    for record in records {
        let Some(limit) = record.limit_us else { continue };
        let times = [
            (format!("fused, {}", record.variant), record.ours_us),
            ("cuBLASLt + NCCL".into(), record.serial_us),
            ("PyTorch".into(), record.torch_us),
            ("cuBLASMp".into(), record.cublasmp_us),
        ];
        for (name, time) in times {
            let Some(point) = time.map(|time| (record.m as f64, time / limit)) else { continue };
            match series.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => series.push((name, vec![point])),
            }
        }
    }
    for (_, points) in &mut series {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by_key(|point| point.0);
    }
    series
}

fn draw_one(file: &Path, title: &str, series: &[Series]) -> Result<()> {
    let points = || series.iter().flat_map(|(_, points)| points);
    let mut rows: Vec<_> = points().map(|&(rows, _)| rows).collect();
    rows.sort_by(f64::total_cmp);
    rows.dedup();
    let (Some(least), Some(most)) = (rows.first(), rows.last()) else { bail!("there is nothing to draw") };
    let columns = least / 1.2..most * 1.2;
    let bottom = points().fold(1.0, |bottom: f64, &(_, time)| bottom.min(time)) - 0.05;
    let top = points().fold(1.2, |top: f64, &(_, time)| top.max(time));
    let top = top + LEGEND_SHARE * (top - bottom);

    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d(columns.clone().log_scale().with_key_points(rows), bottom..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("rows")
        .y_desc("time ÷ limit")
        .x_label_formatter(&|rows| format!("{rows:.0}"))
        .y_label_formatter(&|time| format!("{time:.2}"))
        .draw()?;
    chart
        .draw_series(LineSeries::new([(columns.start, 1.0), (columns.end, 1.0)], LIMIT_COLOUR.stroke_width(2)))?
        .label("limit")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], LIMIT_COLOUR.stroke_width(2)));
    for ((name, points), &colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(4);
        chart
            .draw_series(line)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(LIMIT_COLOUR)
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{merge_peers, tests::sample};

    #[test]
    fn each_operation_model_and_regime_gets_a_plot() {
        let folder = std::env::temp_dir().join(format!("entwine-bench-plots-{}", std::process::id()));
        let files = draw(&merge_peers(sample()), &folder).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "gemm_reduce_scatter-llama7b-burst.svg",
                "gemm_reduce_scatter-llama7b-sustained.svg",
                "all_gather_gemm-llama70b-burst.svg"
            ]
        );
        let svg = fs::read_to_string(&files[0]).unwrap();
        for text in ["limit", "fused, auto", "cuBLASLt + NCCL", "PyTorch", "llama7b on 2 GPUs, burst"] {
            assert!(svg.contains(text), "{text}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn series_are_in_units_of_the_limit() {
        let records = merge_peers(sample());
        let burst: Vec<_> = records.iter().filter(|record| record.variant == "auto").take(2).collect();
        let series = series(&burst);
        assert_eq!(series[1], ("cuBLASLt + NCCL".into(), vec![(512.0, 72.0 / 32.0), (2048.0, 172.5 / 115.0)]));
        assert_eq!(series.len(), 4);
    }
}
