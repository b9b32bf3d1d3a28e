//! The place to which each committed write is copied.

use coherence::{HOST, readable};
use runtime_core::{Element, Error, ErrorKind, Result};

use super::{Core, PartSet, Request};
use crate::Home;
use crate::call_site::CallSite;
use crate::mirror::HOME;

impl<T: Element, D> Core<T, D> {
    pub(crate) fn home(&self) -> Option<Home> {
        self.lock().home.as_deref().cloned()
    }

    /// Sets the home, after the values have been copied there.
    pub(crate) fn set_home(&self, home: Option<Home>, call_site: CallSite) -> Result<()> {
        if let Some(home) = &home {
            let missing = self.missing(self.partition.all().set, home);
            self.send(missing, home, "set_home", call_site)?;
        }
        self.set_extra(HOME, home.is_some());
        self.lock().home = home.map(Box::new);
        Ok(())
    }

    /// Copies parts that were just written to the home, if there is one. Tries all of them, and returns the first
    /// error.
    #[cold]
    pub(crate) fn write_through(&self, set: PartSet) -> Result<()> {
        let Some(home) = self.home() else { return Ok(()) };
        let mut done = Ok(());
        for part in self.missing(set, &home).iter() {
            let writer = self.lock().writers[usize::from(part)].site;
            let Some(writer) = writer else { continue };
            match self.send(PartSet::one(part), &home, "write_through", writer.call_site) {
                // Other parts are in use meanwhile. An access to one of them has made this part stale.
                Err(error) if error.kind() == ErrorKind::Stale => {}
                Err(error) => {
                    tracing::warn!(%error, part, "a write was not copied to the array's home");
                    done = done.and(Err(error));
                }
                Ok(()) => {}
            }
        }
        let committed = "copying values to the array's home; the write is committed";
        done.map_err(|error: Error| error.about(format_args!("{committed}")))
    }

    /// The parts that have values, but not at home.
    fn missing(&self, set: PartSet, home: &Home) -> PartSet {
        let state = self.lock();
        let at = match home {
            Home::Host => Some(HOST),
            Home::Device(stream) => state.replica(stream.device()),
        };
        let is_missing = |part: &u8| {
            let valid = state.parts[usize::from(*part)].valid;
            readable(&state.parts, *part).is_none() && !at.is_some_and(|at| valid.contains(at))
        };
        set.iter().filter(is_missing).collect()
    }

    fn send(
        &self,
        set: PartSet,
        home: &Home,
        access: &'static str,
        call_site: CallSite,
    ) -> Result<()> {
        if set.is_empty() {
            return Ok(());
        }
        let stream = match home {
            Home::Host => None,
            Home::Device(stream) => Some(stream),
        };
        self.prefetch(&Request::new(&set, stream, access, call_site))
    }
}
