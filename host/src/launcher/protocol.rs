//! A kernel's protocol as a graph that people can read.

use std::fmt;

use crate::spec::{Carriage, ChannelSpec, ElementSpec, Extent, ItemSpec, KernelSpec, Route, StageSpec};

/// Who sends what to whom in a kernel, how much of it, and what frees a slot for reuse. Displays as a Mermaid flowchart.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    kernel: &'static KernelSpec,
}

impl Protocol {
    /// The protocol of a kernel.
    pub fn of(kernel: &'static KernelSpec) -> Self {
        Protocol { kernel }
    }

    fn stage(&self, stage: &StageSpec) -> String {
        let carriers = match (stage.ctas, stage.moved) {
            (Some(ctas), _) => format!("<br/>on {ctas} CTAs of its own"),
            (None, true) => "<br/>carried by the movers".into(),
            (None, false) => String::new(),
        };
        format!("{}<br/>{} tiles, {}{carriers}", stage.name, self.grid(stage.grid), stage.order)
    }

    fn channel(&self, channel: &ChannelSpec) -> String {
        let dims = self.kernel.dims;
        let item = match &channel.item {
            ItemSpec::Tile { element, rows, columns } => {
                format!("Tile&lt;{}, {}, {}&gt;", element_name(*element), rows.text(dims), columns.text(dims))
            }
            ItemSpec::Panel { element, rows, columns } => format!(
                "Panel&lt;{}, {}&gt; of {} columns",
                element_name(*element),
                rows.text(dims),
                columns.text(dims)
            ),
            ItemSpec::Gate => return format!("{}: {} gates", channel.name, self.grid(channel.slots)),
            ItemSpec::Routing { rows, choices, groups, .. } => {
                let (rows, choices, groups) = (rows.text(dims), choices.text(dims), groups.text(dims));
                return format!("{}: {choices} of {groups} groups for each of {rows} rows", channel.name);
            }
        };
        let cut = match signalled(channel) {
            "piece" => format!(", cut into {} pieces", channel.pieces.text(dims)),
            _ => String::new(),
        };
        format!("{}: {item}{cut}<br/>{} slots, two buffers", channel.name, self.grid(channel.slots))
    }

    fn grid(&self, extents: &[Extent]) -> String {
        let axes: Vec<_> = extents.iter().map(|axis| axis.text(self.kernel.dims).to_string()).collect();
        axes.join(" × ")
    }
}

/// What one signal stands for.
fn signalled(channel: &ChannelSpec) -> &'static str {
    if matches!(channel.pieces, Extent::Literal(1)) { "slot" } else { "piece" }
}

fn element_name(element: ElementSpec) -> &'static str {
    match element {
        ElementSpec::Variant => "T",
        ElementSpec::Fixed(element) => element.name(),
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelSpec { name, stages, channels, .. } = self.kernel;
        writeln!(f, "---\ntitle: {name}\n---\nflowchart LR")?;
        for (index, stage) in stages.iter().enumerate() {
            writeln!(f, "    s{index}[\"{}\"]", self.stage(stage))?;
        }
        for (index, channel) in channels.iter().enumerate() {
            writeln!(f, "    c{index}[/\"{}\"/]", self.channel(channel))?;
        }
        for (stage, spec) in stages.iter().enumerate() {
            for &channel in spec.sends {
                let ChannelSpec { route, carriage, .. } = &channels[channel];
                if matches!(channels[channel].item, ItemSpec::Gate) {
                    writeln!(f, "    s{stage} -->|\"counted\"| c{channel}")?;
                    continue;
                }
                let to = match route {
                    Route::One => "to one rank",
                    Route::Peers => "to every other rank",
                    Route::All => "to every rank",
                };
                let by = match carriage {
                    Some(Carriage::Push) => "stored in its memory",
                    Some(Carriage::Pull) => "kept for it to load",
                    None => "stored in its memory or kept for it to load",
                };
                let what = signalled(&channels[channel]);
                writeln!(f, "    s{stage} -->|\"{to}, {by}; 1 signal a {what}\"| c{channel}")?;
            }
            for &channel in spec.receives {
                writeln!(f, "    c{channel} -->|\"1 wait a {}\"| s{stage}", signalled(&channels[channel]))?;
            }
        }
        for (channel, spec) in channels.iter().enumerate().filter(|(_, channel)| channel.acknowledged) {
            let senders = stages.iter().enumerate().filter(|(_, stage)| stage.sends.contains(&channel));
            for (sender, _) in senders {
                writeln!(f, "    c{channel} -.->|\"{}: receiver started epoch − 1\"| s{sender}", spec.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SPEC;

    #[test]
    fn everything_is_in_the_graph() {
        let expected = "\
---
title: gather_sum
---
flowchart LR
    s0[\"sum<br/>world × m / world / BM × n / BN tiles, peers_first\"]
    c0[/\"Part: Tile&lt;T, BM, BN&gt;<br/>world × m / world / BM × n / BN slots, two buffers\"/]
    s0 -->|\"to one rank, stored in its memory or kept for it to load; 1 signal a slot\"| c0
    c0 -->|\"1 wait a slot\"| s0
    c0 -.->|\"Part: receiver started epoch − 1\"| s0
";
        assert_eq!(Protocol::of(&SPEC).to_string(), expected);
    }
}
