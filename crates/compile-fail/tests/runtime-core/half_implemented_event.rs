use runtime_core::contract::DeviceEvent;
use runtime_core::{NativeHandle, Result};

struct Event;

unsafe impl DeviceEvent for Event {
    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn assist(&self) {}

    fn native(&self) -> NativeHandle {
        unimplemented!()
    }
}

fn main() {}
