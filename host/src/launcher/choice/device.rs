//! What a GPU does in which time.

/// What is known of a kind of GPU: how long its CTAs, its memory and its links take. Times are in µs, rates in GB/s
/// (10⁹ bytes a second).
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// The name that the driver gives it.
    pub name: String,
    /// SMs, each of which works on one tile at a time.
    pub processors: u32,
    /// A CTA's step of 128 bytes of depth through a product of any size, as far as it does not depend on the tile…
    pub step_us: f64,
    /// … and for a tile of 128 × 128, in proportion for others.
    pub step_area_us: f64,
    /// From the last step of a tile to the first of the next.
    pub tile_us: f64,
    /// The start and the end of a launch among others.
    pub launch_us: f64,
    /// What one CTA moves through its shared memory.
    pub cta_gbps: f64,
    /// What one CTA reads of operands that come from memory.
    pub stream_gbps: f64,
    /// What one mover sends over the link, a box at a time.
    pub mover_gbps: f64,
    /// Its memory.
    pub memory_gbps: f64,
    /// Bytes of operands that stay in its cache from one visit to the next.
    pub cached_bytes: u64,
    /// The link to the other GPUs, each way.
    pub link_gbps: f64,
    /// From the end of a store to where it has been signalled and seen.
    pub signal_us: f64,
}

impl Device {
    /// An H200, as measured on two of them that reach each other over NVLink (`docs/performance.md`), cool.
    pub fn h200() -> Self {
        Device {
            name: "NVIDIA H200".into(),
            processors: 132,
            step_us: 0.04,
            step_area_us: 0.305,
            tile_us: 0.95,
            launch_us: 4.6,
            cta_gbps: 50.0,
            stream_gbps: 75.0,
            mover_gbps: 11.0,
            memory_gbps: 4100.0,
            cached_bytes: 30 << 20,
            link_gbps: 390.0,
            signal_us: 3.0,
        }
    }

    /// The GPU of this name with so many SMs. One that was not measured is taken for an H200 in all else.
    pub(crate) fn named(name: String, processors: u32) -> Self {
        Device { name, processors, ..Device::h200() }
    }

    /// Whether its figures were measured, or are another GPU's.
    pub fn is_measured(&self) -> bool {
        self.name == Device::h200().name
    }
}
