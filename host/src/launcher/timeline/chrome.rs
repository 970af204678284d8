//! A timeline as a trace in Chrome's JSON format, which Perfetto reads: ranks are processes, the roles of CTAs threads.

use std::io::{self, Write};

use entwine_device::abi::NONE;
use entwine_device::log::Recorder;
use serde_json::{Map, Value, json};

use super::{Activity, Event, Slice, Timeline, coordinates};

impl Timeline {
    /// The record as a trace that Perfetto (<https://ui.perfetto.dev>) and Chrome's `about:tracing` open. Arrows lead from
    /// each send to the wait that it ended. The trace states how far the ranks' clocks may be apart.
    pub fn to_chrome_trace(&self) -> String {
        let mut trace = Vec::new();
        self.write_chrome_trace(&mut trace).expect("memory can be written to");
        String::from_utf8(trace).expect("JSON is text")
    }

    /// Event by event: a trace may be large.
    pub(super) fn write_chrome_trace(&self, to: &mut impl Write) -> io::Result<()> {
        let clocks = self
            .clocks
            .iter()
            .map(|clock| json!({ "offset_ns": clock.offset_ns, "uncertainty_ns": clock.uncertainty_ns }));
        let about = json!({
            "kernel": self.kernel.name,
            "clocks": clocks.collect::<Vec<_>>(),
            "notes": self.clock_notes(),
            "dropped_events": self.dropped,
        });
        writeln!(to, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[")?;
        let mut separator = "";
        let names = self.names();
        let slices = self.slices().map(|slice| self.slice(&slice));
        let arrows = self.arrows().into_iter().zip(1..).flat_map(|((send, ready), id)| arrow(send, ready, id));
        for event in names.into_iter().chain(slices).chain(arrows) {
            write!(to, "{separator}{event}")?;
            separator = ",\n";
        }
        writeln!(to, "\n]}}")
    }

    /// The names of processes and threads, in the order in which they are shown.
    fn names(&self) -> Vec<Value> {
        let ranks = (0..self.world()).map(|rank| {
            json!({ "ph": "M", "name": "process_name", "pid": rank, "args": { "name": format!("rank {rank}") } })
        });
        let rows = self.rows().flat_map(|row| {
            let Event { cta, recorder, .. } = row[0];
            let (pid, tid) = (row[0].rank, thread(&row[0]));
            let name = format!("CTA {cta} {}", name(recorder));
            [
                json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": name } }),
                json!({ "ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": { "sort_index": tid } }),
            ]
        });
        ranks.chain(rows).collect()
    }

    fn slice(&self, slice: &Slice) -> Value {
        let event = &slice.event;
        let mut about = Map::new();
        if event.stage != NONE {
            about.insert("stage".into(), self.stage(event.stage).into());
            about.insert("tile".into(), coordinates(&event.tile).into());
        }
        if let Some(channel) = self.kernel.channels.get(event.channel as usize) {
            about.insert("channel".into(), channel.name.into());
            about.insert("slot".into(), coordinates(&event.slot).into());
        }
        if event.piece != NONE {
            about.insert("piece".into(), event.piece.into());
        }
        if event.peer != NONE {
            about.insert("peer".into(), event.peer.into());
        }
        let name = match slice.activity {
            Activity::Multiply => "multiply",
            Activity::Work => "work",
            Activity::Wait => "wait",
            Activity::Communicate => "communicate",
        };
        // A wait that was over at once is shown, too: an arrow may end there.
        let duration = (slice.end - event.at).max(1);
        json!({
            "ph": "X", "name": name, "cat": self.stage(event.stage), "pid": event.rank, "tid": thread(event),
            "ts": micros(event.at), "dur": micros(duration), "args": about,
        })
    }
}

/// An arrow's two ends, each within the slice that it belongs to: the storing that the send ended, and the wait.
fn arrow(send: &Event, ready: &Event, id: u64) -> [Value; 2] {
    let end = |event: &Event, kind: &str| {
        json!({
            "ph": kind, "id": id, "name": "send", "cat": "signal", "bp": "e", "pid": event.rank, "tid": thread(event),
            "ts": micros(event.at.saturating_sub(1)),
        })
    };
    [end(send, "s"), end(ready, "f")]
}

/// The number of a role's thread.
fn thread(event: &Event) -> u32 {
    event.cta * Recorder::ALL.len() as u32 + event.recorder as u32
}

fn name(recorder: Recorder) -> &'static str {
    match recorder {
        Recorder::Loader => "loader",
        Recorder::Communication => "communication",
        Recorder::Mover => "mover",
        Recorder::Poller => "poller",
        Recorder::Math => "math",
        Recorder::Whole => "all",
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_trace_is_json_with_slices_and_arrows() {
        let trace: Value = serde_json::from_str(&two_ranks().to_chrome_trace()).unwrap();
        assert_eq!(trace["otherData"]["kernel"], "gather_sum");
        assert_eq!(trace["otherData"]["clocks"][1]["uncertainty_ns"], 0);
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
        let [start, end] = ["s", "f"].map(|kind| of(kind)[0]);
        assert_eq!((of("s").len(), of("f").len(), &start["id"]), (1, 1, &end["id"]));
        assert_eq!((start["pid"].as_u64(), end["pid"].as_u64()), (Some(1), Some(0)));
        let wait = of("X").into_iter().find(|slice| slice["name"] == "wait").unwrap();
        let span = [&wait["ts"], &wait["dur"], &end["ts"]].map(|time| time.as_f64().unwrap());
        assert!(span[0] < span[2] && span[2] < span[0] + span[1], "{span:?}");
        assert_eq!((&wait["args"]["channel"], &wait["args"]["slot"][0]), (&json!("Part"), &json!(1)));
        assert_eq!(of("M").len(), 2 + 2 * 2);
    }
}
