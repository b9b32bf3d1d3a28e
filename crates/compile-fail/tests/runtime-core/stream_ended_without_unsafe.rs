use runtime_core::contract::{DeviceStream, NativeInterop};

fn misuse(ability: &dyn NativeInterop, stream: &dyn DeviceStream) {
    ability.stream_end(stream);
}

fn main() {}
