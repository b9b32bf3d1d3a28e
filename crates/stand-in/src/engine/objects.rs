//! The objects of a context.

use std::sync::Arc;

use super::Engine;
use crate::context::Context;
use crate::pool::Pool;
use crate::report::Entry;
use crate::space::Allocation;
use crate::stream::Stream;

impl Engine {
    /// The number of live objects of each kind in a context.
    pub(super) fn count_objects(&self, context: &Arc<Context>) -> Vec<(&'static str, usize)> {
        let here = |of: &Arc<Context>| Arc::ptr_eq(of, context);
        let memory = self.state.space.snapshot();
        let count = |pinned| {
            let alive = memory.iter().filter(|m| here(&m.context) && !m.was_freed());
            alive.filter(|memory| memory.is_pinned() == pinned).count()
        };
        let created = |stream: &Stream| here(&stream.context) && !stream.is_default;
        // Pools belong to the device. They are counted with its last context.
        let contexts = self.contexts.count(|other| other.device() == context.device());
        let own = |pool: &Pool| contexts < 2 && pool.device == context.device() && !pool.is_default;
        let counts = [
            (self.pools.kind(), self.pools.count(own)),
            ("memory", count(false)),
            ("pinned memory", count(true)),
            (self.streams.kind(), self.streams.count(created)),
            (self.events.kind(), self.events.count(|event| here(&event.context))),
            (self.modules.kind(), self.modules.count(|module| here(&module.context))),
            (self.graphs.kind(), self.graphs.count(|graph| here(&graph.context))),
            (self.executables.kind(), self.executables.count(|graph| here(&graph.context))),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Destroys all objects of a context, and those of its allocations that `ends` selects. Live objects are leaks,
    /// unless the context has failed or hangs: then they cannot be destroyed one by one.
    pub(super) fn destroy_objects(
        &self,
        context: &Arc<Context>,
        ends: impl Fn(&Allocation) -> bool,
    ) {
        if context.check().and_then(|()| context.check_progress()).is_ok() {
            for (object, count) in self.count_objects(context) {
                self.state.report.add(Entry::Leak { device: context.device(), object, count });
            }
        }
        for stream in self.all_streams(context) {
            let capture = stream.with_capture(|captured| {
                captured.as_ref().map(|captured| Arc::clone(&captured.capture))
            });
            if let Some(capture) = capture {
                self.end_capture(&capture);
            }
            stream.close();
            stream.drain();
        }
        let here = |of: &Arc<Context>| Arc::ptr_eq(of, context);
        self.streams.take(|stream| here(&stream.context));
        self.events.take(|event| here(&event.context));
        self.functions.take(|function| here(&function.module.context));
        self.modules.take(|module| here(&module.context));
        self.graphs.take(|graph| here(&graph.context));
        self.executables.take(|graph| here(&graph.context));
        let memory = self.state.space.snapshot();
        for memory in memory.iter().filter(|m| here(&m.context)) {
            if ends(memory) {
                self.state.space.remove(memory);
            } else {
                memory.forget_uses();
            }
        }
    }
}
