//! Contexts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use crate::code::{Code, Result};
use crate::context::{Context, Primary};
use crate::pool::Pool;

impl Engine {
    /// Retains the primary context of a device, and returns its handle.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn retain(&self, device: usize) -> Result<u64> {
        let slot = &mut *self.device(device)?.primary.lock();
        let primary = slot.get_or_insert_with(|| self.new_primary(device));
        primary.retains += 1;
        Ok(primary.context.handle())
    }

    /// The primary context of a device, for drivers whose interface has no contexts. The first call retains it for
    /// ever.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn primary(&self, device: usize) -> Result<Arc<Context>> {
        let slot = &mut *self.device(device)?.primary.lock();
        let primary =
            slot.get_or_insert_with(|| Primary { retains: 1, ..self.new_primary(device) });
        Ok(Arc::clone(&primary.context))
    }

    fn new_primary(&self, device: usize) -> Primary {
        Primary { context: self.new_context(device), retains: 0 }
    }

    fn new_context(&self, device: usize) -> Arc<Context> {
        self.contexts.insert_with(|handle| Context::new(device, handle)).1
    }

    /// Creates a context besides the primary one, and returns its handle.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn context_create(&self, device: usize) -> Result<u64> {
        self.device(device)?;
        Ok(self.new_context(device).handle())
    }

    /// Destroys a context that [`context_create`](Self::context_create) made, with all its objects.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_CONTEXT`] for a primary context, or for an invalid handle.
    pub fn context_destroy(&self, handle: u64) -> Result<()> {
        let context = self.context(handle)?;
        let slot = self.device(context.device())?.primary.lock();
        if slot.as_ref().is_some_and(|primary| Arc::ptr_eq(&primary.context, &context)) {
            return Err(Code::INVALID_CONTEXT);
        }
        drop(slot);
        self.end(&context);
        Ok(())
    }

    /// Destroys a context. Memory of pools belongs to the device, and survives.
    fn end(&self, context: &Arc<Context>) {
        self.destroy_objects(context, |memory| memory.pool().is_none());
        let _context = self.contexts.remove(context.handle());
    }

    /// Releases the primary context of a device. The last release destroys it with all its objects.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`], or [`Code::INVALID_CONTEXT`] if it was not retained.
    pub fn release(&self, device: usize) -> Result<()> {
        let slot = &mut *self.device(device)?.primary.lock();
        let primary = slot.as_mut().ok_or(Code::INVALID_CONTEXT)?;
        primary.retains -= 1;
        if primary.retains == 0 {
            self.end(&primary.context);
            *slot = None;
        }
        Ok(())
    }

    /// Destroys all objects of the primary context of a device, and the device's pools, and ends its failure. The
    /// context itself stays retained.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn reset(&self, device: usize) -> Result<()> {
        if let Some(primary) = &*self.device(device)?.primary.lock() {
            primary.context.stop().store(true, Ordering::Release);
            self.destroy_objects(&primary.context, |_| true);
            let here = |pool: &Pool| pool.device == device;
            self.pools.all().iter().filter(|pool| here(pool)).for_each(|pool| pool.trim(0));
            self.pools.take(|pool| here(pool) && !pool.is_default);
            primary.context.renew();
        }
        Ok(())
    }

    /// Whether the primary context of a device is retained.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    pub fn is_active(&self, device: usize) -> Result<bool> {
        Ok(self.device(device)?.primary.lock().is_some())
    }

    /// The context of a handle. An invalid handle is a violation.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_CONTEXT`].
    pub fn context(&self, handle: u64) -> Result<Arc<Context>> {
        self.contexts.get(handle).map_err(|why| {
            self.state.report.violation("bad handle", why);
            Code::INVALID_CONTEXT
        })
    }
}
