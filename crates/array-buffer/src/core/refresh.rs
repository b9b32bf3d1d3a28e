//! Exchanges that accesses to stale ghosts run first.

use std::sync::atomic::Ordering;
use std::thread;

use coherence::{Action, Exchange, Refusal, plan, readable};
use runtime_core::{Element, Error, ErrorKind, Result, Stream};

use super::registered::{Registered, Runner};
use super::{Core, Request, Run, State};
use crate::budget;
use crate::call_site::{At, CallSite};
use crate::mirror::REFRESHED;
use crate::poison::Poison;
use crate::report::AccessSite;

impl<T: Element, D> Core<T, D> {
    /// Whether accesses refresh ghosts.
    pub(crate) fn is_refreshed(&self) -> bool {
        self.mirror.is_refreshed()
    }

    /// Registers what runs exchanges, or nothing. The array is borrowed exclusively.
    pub(super) fn register(&self, refresh: Option<(Stream, Box<Run<T, D>>)>) {
        let version = self.version();
        let registered = refresh.map(|(stream, run)| Registered::new(stream, run, version));
        self.set_extra(REFRESHED, registered.is_some());
        self.refreshing.set(registered);
    }

    /// The number of collective operations since the registration; without one, the version.
    pub(crate) fn sequence(&self) -> u64 {
        let base = self.refreshing.get().map_or(0, |known| known.base.load(Ordering::Relaxed));
        self.version().wrapping_sub(base)
    }

    /// Notes that other ranks do not make the writes since this version.
    pub(crate) fn exclude_since(&self, version: u64) {
        if let Some(known) = self.refreshing.get() {
            known.base.fetch_add(self.version().wrapping_sub(version), Ordering::Relaxed);
        }
    }

    /// Notes a local write, or that other ranks know of all local writes.
    pub(crate) fn set_local(&self, call_site: Option<CallSite>) {
        if let Some(known) = self.refreshing.get() {
            *known.local.lock() = call_site;
        }
    }

    /// Makes all ghosts stale. It counts as a collective operation.
    pub(super) fn outdate(&self) {
        self.set_local(None);
        if let Some(known) = self.refreshing.get() {
            known.base.fetch_sub(1, Ordering::Relaxed);
        }
        let mut state = self.lock();
        // This cannot be refused.
        if let Ok(plan) =
            plan(&state.parts, self.partition.all().set, Action::Outdate, &state.paths)
        {
            state.replace(plan.next, Poison::Work);
        }
        self.mirror.show(&mut state.parts);
    }

    /// Why an action needs an exchange first, if the request may run one.
    pub(super) fn needs_refresh(
        &self,
        state: &State<T>,
        request: &Request<'_>,
        action: Action,
    ) -> Option<Refusal> {
        if !(request.may_refresh && self.is_refreshed()) {
            return None;
        }
        let refused = plan(&state.parts, *request.set, action, &state.paths).err();
        refused.filter(|why| {
            // Another thread's refresh may be running.
            matches!(why, Refusal::Stale(_) | Refusal::Pending(..) | Refusal::Exchanging(_))
        })
    }

    /// Runs the exchange that an action needs first, unless another thread has run it meanwhile. The action may need
    /// one more exchange. `request` has a borrow of the whole array, and no parts were borrowed separately.
    #[cold]
    pub(super) fn refresh(&self, request: &Request<'_>, action: Action) -> Result<()> {
        let Some(known) = self.refreshing.get() else { return Ok(()) };
        let Request { access, call_site, .. } = *request;
        let device = known.stream.device().id();
        if *known.runner.lock() == Some(thread::current().id()) {
            let message = format!("a refresh needs the {access}{}, which needs it", At(call_site));
            return Err(Error::new(ErrorKind::Conflict, "refresh", message).on(device));
        }
        let mut run = known.run.lock();
        let state = self.lock();
        let Some(why) = self.needs_refresh(&state, request, action) else { return Ok(()) };
        let (part, exchange) = match why {
            Refusal::Pending(part, _) => (part, Exchange::Reduce),
            Refusal::Stale(part) if state.parts.iter().all(|part| part.pending.is_none()) => {
                (part, Exchange::Broadcast)
            }
            Refusal::Stale(part) => (part, Exchange::Reduce),
            // The exchange was forgotten.
            _ => return Err(state.refused(why, access, Some(call_site), &self.partition)),
        };
        let checked = self.check_refresh(&state, &known, exchange);
        drop(state);
        let done = checked.and_then(|()| {
            budget::check_refresh(access, call_site)?;
            let _runner = Runner::enter(&known.runner);
            run(self, &known.stream, exchange, call_site)
        });
        done.map_err(|error| {
            let what = format!("{} of part {part} for the {access}", exchange.name());
            error.about(what + &At(call_site).to_string()).on(device)
        })?;
        let mut state = self.lock();
        let at = state.replica(known.stream.device()).unwrap_or_default();
        let needed_at = request.stream.map(|stream| state.replica(stream.device()));
        let needed_at = needed_at.flatten().unwrap_or_default();
        let site = AccessSite { at: needed_at, access, call_site };
        state.ledger.add_refresh(at, exchange, site);
        Ok(())
    }

    /// Refuses a refresh that could change what a guard reads, or that other ranks do not run.
    fn check_refresh(
        &self,
        state: &State<T>,
        known: &Registered<Run<T, D>>,
        exchange: Exchange,
    ) -> Result<()> {
        if let Some(call_site) = *known.local.lock() {
            let message = format!(
                "other ranks do not know of the write_local{}; call mark_stale() on all ranks",
                At(call_site)
            );
            return Err(Error::new(ErrorKind::Stale, "refresh", message));
        }
        // Empty parts have no values that could change.
        let empty = |ghost: &u8| self.partition.is_empty(usize::from(*ghost));
        for ghost in self.partition.ghosts().set.iter().filter(|ghost| !empty(ghost)) {
            match readable(&state.parts, ghost) {
                Some(Refusal::Stale(_) | Refusal::Pending(..) | Refusal::Uninit(_)) => {}
                Some(why) => return Err(state.refused(why, "refresh", None, &self.partition)),
                // Its readers do not expect a writer.
                None => {
                    let message = format!(
                        "ghost part {ghost} is valid, and a {} changes all ghosts; call mark_stale() first",
                        exchange.name()
                    );
                    return Err(Error::new(ErrorKind::Conflict, "refresh", message));
                }
            }
        }
        Ok(())
    }
}
