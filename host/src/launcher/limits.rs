//! What a launch's sizes must be for its channels to work, where only the launch knows them.

use entwine_device::layout::routing::{MAX_CHOICES, MAX_GROUPS};

use crate::dims::where_from;
use crate::error::Error;
use crate::extent::{self, Sizes};
use crate::spec::{ChannelSpec, Extent, ItemSpec, KernelSpec};

/// Refuses channels that would send nothing of their tiles, and routings that are too large.
pub(crate) fn check(kernel: &KernelSpec, sizes: &Sizes<'_>) -> Result<(), Error> {
    for (index, channel) in kernel.channels.iter().enumerate() {
        let problem = match &channel.item {
            ItemSpec::Tile { rows, .. } => low(kernel, index, channel, rows, sizes),
            ItemSpec::Routing { rows, choices, groups, .. } => too_large(kernel, rows, choices, groups, sizes),
            ItemSpec::Panel { .. } | ItemSpec::Gate => None,
        };
        if let Some(problem) = problem {
            let problem = format!("channel `{}`: {problem}; {}", channel.name, where_from(kernel, sizes));
            return Err(Error::Launch { kernel: kernel.name, problem });
        }
    }
    Ok(())
}

/// What is wrong with a channel's height: no rows are sent, though there are tiles to send.
fn low(kernel: &KernelSpec, index: usize, channel: &ChannelSpec, rows: &Extent, sizes: &Sizes<'_>) -> Option<String> {
    let any = |axes: &[Extent]| extent::count(axes, sizes).is_some_and(|count| count > 0);
    let sends = kernel.stages.iter().any(|stage| stage.sends.contains(&index) && any(stage.grid));
    (channel.height.value(sizes)? == 0 && sends && any(channel.slots)).then_some(())?;
    Some(format!(
        "expected a height (`{}`) of 1 row or more, of the {} rows of its tiles, found 0",
        channel.height.text(kernel.dims),
        rows.value(sizes)?
    ))
}

/// What is wrong with a routing's sizes.
fn too_large(
    kernel: &KernelSpec,
    rows: &Extent,
    choices: &Extent,
    groups: &Extent,
    sizes: &Sizes<'_>,
) -> Option<String> {
    let [count, each, all] = [groups.value(sizes)?, choices.value(sizes)?, rows.value(sizes)?];
    if count > MAX_GROUPS {
        return Some(format!("expected at most {MAX_GROUPS} groups (`{}`), found {count}", groups.text(kernel.dims)));
    }
    let total = all as u64 * each as u64;
    (total >= MAX_CHOICES as u64).then(|| {
        format!(
            "expected fewer than {MAX_CHOICES} choices of a rank's rows, found {total}: {all} rows (`{}`) that choose {each} \
             (`{}`) each",
            rows.text(kernel.dims),
            choices.text(kernel.dims)
        )
    })
}
