//! Functions that are the same in all drivers, except for their names.
//!
//! A stand-in exports them by [`functions`](crate::functions) and the macros of this file, in a module where these are in scope:
//! the types of [`abi`](crate::abi) that the functions take; `answer`, which turns an outcome into a code; `engine` and `current`,
//! the devices and what is current in the thread; `current_to_wait`, the same for calls that a capture may forbid.

/// Exports functions, each of which answers what its expression comes to.
#[macro_export]
macro_rules! functions {
    ($($(#[$about:meta])* $name:ident($($argument:ident: $type:ty),* $(,)?) = $body:expr;)*) => {$(
        $(#[$about])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> u32 {
            answer(|| $body)
        }
    )*};
}

/// Exports the functions of streams and events, but those that make them. `named` is in scope, which takes the handles that a
/// driver has for streams of its own.
#[macro_export]
macro_rules! stream_functions {
    (
        destroy: $destroy:ident, priority: $priority:ident, flags: $flags:ident,
        query: $query:ident, synchronize: $synchronize:ident,
        event_destroy: $event_destroy:ident, event_record: $event_record:ident,
        event_query: $event_query:ident, event_synchronize: $event_synchronize:ident,
        event_elapsed: $event_elapsed:ident $(,)?
    ) => {
        $crate::functions! {
            $destroy(stream: Handle) = engine()?.stream_destroy(stream);
            $priority(stream: Handle, priority: Out<i32>) =
                priority.put(engine()?.stream(stream)?.priority);
            $flags(stream: Handle, flags: Out<u32>) =
                flags.put(engine()?.stream(stream)?.flags);
            $query(stream: Handle) =
                waiting(|engine| engine.stream_query(named(engine, stream)?));
            $synchronize(stream: Handle) =
                waiting(|engine| engine.stream_synchronize(named(engine, stream)?));
            $event_destroy(event: Handle) = engine()?.event_destroy(event);
            $event_record(event: Handle, stream: Handle) = {
                let (engine, context) = current()?;
                engine.event_record(&context, event, stream)
            };
            $event_query(event: Handle) = waiting(|engine| engine.event_query(event));
            $event_synchronize(event: Handle) =
                waiting(|engine| engine.event_synchronize(event));
            $event_elapsed(
                milliseconds: Out<f32>,
                start: Handle,
                end: Handle,
            ) = milliseconds.put(engine()?.event_elapsed(start, end)?);
        }

        /// Asks or waits, unless a graph is captured.
        fn waiting(call: impl FnOnce(&$crate::Engine) -> $crate::Result<()>) -> $crate::Result<()> {
            let engine = engine()?;
            engine.may_wait($crate::process::mode())?;
            call(engine)
        }
    };
}

/// Exports the functions of graphs.
#[macro_export]
macro_rules! graph_functions {
    (
        exchange_mode: $exchange_mode:ident, begin: $begin:ident, end: $end:ident,
        is_capturing: $is_capturing:ident, instantiate: $instantiate:ident, launch: $launch:ident,
        exec_destroy: $exec_destroy:ident, destroy: $destroy:ident $(,)?
    ) => {
        $crate::functions! {
            $exchange_mode(exchanged: Buffer) = {
                let new = $crate::CaptureMode::of(exchanged.holding::<u32>().get()?)?;
                exchanged.of::<u32>().put($crate::process::mode() as u32)?;
                $crate::process::set_mode(new);
                Ok(())
            };
            $begin(stream: Handle, mode: u32) =
                engine()?.capture_begin(stream, $crate::CaptureMode::of(mode)?);
            $end(stream: Handle, graph: Out<Handle>) = {
                let ended = engine()?.capture_end(stream);
                graph.put(ended.unwrap_or(0))?;
                ended.map(drop)
            };
            $is_capturing(stream: Handle, status: Out<u32>) = {
                let state = engine()?.capture_state(stream)?;
                status.put(state.map_or(0, |is_spoilt| if is_spoilt { 2 } else { 1 }))
            };
            $instantiate(
                executable: Out<Handle>,
                graph: Handle,
                flags: u64,
            ) = match flags {
                0 => executable.put(engine()?.graph_instantiate(graph)?),
                _ => Err($crate::Code::INVALID_VALUE),
            };
            $launch(executable: Handle, stream: Handle) = {
                let (engine, context) = current()?;
                engine.graph_launch(&context, executable, stream)
            };
            $exec_destroy(executable: Handle) = engine()?.executable_destroy(executable);
            $destroy(graph: Handle) = engine()?.graph_destroy(graph);
        }
    };
}

/// Exports the functions of copies between addresses and of fills, and makes what other copies are made of: `rows` and `bytes`.
#[macro_export]
macro_rules! copy_functions {
    (
        to: $to:ident, from: $from:ident, within: $within:ident,
        fill_8: $fill_8:ident, fill_16: $fill_16:ident, fill_32: $fill_32:ident $(,)?
    ) => {
        /// Copies rows in the current context.
        fn rows(
            to: ($crate::End, $crate::Pitch),
            from: ($crate::End, $crate::Pitch),
            extent: $crate::Extent,
            stream: Handle,
        ) -> $crate::Result<()> {
            let (engine, context) = current()?;
            // SAFETY: callers of the driver keep what the copy needs, as the driver asks of them.
            unsafe { engine.copy(&context, to, from, extent, stream) }
        }

        /// Copies bytes in the current context.
        fn bytes(
            to: $crate::End,
            from: $crate::End,
            bytes: usize,
            stream: Handle,
        ) -> $crate::Result<()> {
            let pitch = $crate::Pitch::default();
            rows((to, pitch), (from, pitch), [bytes, 1, 1], stream)
        }

        /// Fills memory in the current context.
        fn fill(address: u64, pattern: &[u8], count: usize, stream: Handle) -> $crate::Result<()> {
            let (engine, context) = current()?;
            engine.fill(&context, address, pattern, count, stream)
        }

        $crate::functions! {
            $to(to: u64, from: *mut u8, len: usize, stream: Handle) =
                bytes($crate::End::Device(to), $crate::End::Host(from), len, stream);
            $from(to: *mut u8, from: u64, len: usize, stream: Handle) =
                bytes($crate::End::Host(to), $crate::End::Device(from), len, stream);
            $within(to: u64, from: u64, len: usize, stream: Handle) =
                bytes($crate::End::Device(to), $crate::End::Device(from), len, stream);
            $fill_8(address: u64, value: u8, count: usize, stream: Handle) =
                fill(address, &[value], count, stream);
            $fill_16(address: u64, value: u16, count: usize, stream: Handle) =
                fill(address, &value.to_le_bytes(), count, stream);
            $fill_32(address: u64, value: u32, count: usize, stream: Handle) =
                fill(address, &value.to_le_bytes(), count, stream);
        }
    };
}

/// Exports functions of memory: those that free it, that tell of it, and that register the host's.
#[macro_export]
macro_rules! memory_functions {
    (
        info: $info:ident, free: $free:ident, free_host: $free_host:ident,
        register: $register:ident, unregister: $unregister:ident,
        device_pointer: $device_pointer:ident, address_range: $address_range:ident $(,)?
    ) => {
        $crate::functions! {
            $info(free: Out<usize>, total: Out<usize>) = {
                let (engine, context) = current()?;
                context.check()?;
                free.put(engine.free_memory(context.device())?)?;
                total.put(engine.config().memory)
            };
            $free(address: u64) = {
                let (engine, context) = current_to_wait()?;
                if address == 0 { Ok(()) } else { engine.free(&context, address) }
            };
            $free_host(pointer: u64) = {
                let (engine, context) = current_to_wait()?;
                if pointer == 0 { Ok(()) } else { engine.free_pinned(&context, pointer) }
            };
            $register(start: Buffer, bytes: usize, flags: u32) = {
                let (engine, context) = current_to_wait()?;
                let start = ::std::ptr::NonNull::new(start.start().cast());
                let start = start.filter(|_| flags < 16).ok_or($crate::Code::INVALID_VALUE)?;
                // SAFETY: callers of the driver keep the memory until they unregister it.
                unsafe { engine.register(&context, start, bytes) }
            };
            $unregister(pointer: u64) = {
                let (engine, context) = current_to_wait()?;
                engine.unregister(&context, pointer)
            };
            $device_pointer(address: Out<u64>, pointer: u64, flags: u32) = {
                let found = current()?.0.memory_at(pointer);
                let found = found.filter(|found| found.is_pinned && flags == 0);
                found.ok_or($crate::Code::INVALID_VALUE)?;
                address.put(pointer)
            };
            $address_range(
                base: Out<u64>,
                bytes: Out<usize>,
                address: u64,
            ) = {
                let found = current()?.0.memory_at(address).ok_or($crate::Code::NOT_FOUND)?;
                base.offer(found.base);
                bytes.offer(found.len);
                Ok(())
            };
        }
    };
}

/// Exports functions of memory pools, but those that make and trim them and that allocate. `ordinal` is in scope, which takes a
/// device as callers number it.
#[macro_export]
macro_rules! pool_functions {
    (
        destroy: $destroy:ident, default_of: $default_of:ident, of: $of:ident,
        get: $get:ident, set: $set:ident, set_access: $set_access:ident $(,)?
    ) => {
        $crate::functions! {
            $destroy(pool: Handle) = engine()?.pool_destroy(pool);
            $default_of(pool: Out<Handle>, device: i32) =
                pool.put(engine()?.default_pool(ordinal(device)?)?);
            $of(pool: Out<Handle>, device: i32) =
                pool.put(engine()?.default_pool(ordinal(device)?)?);
            $get(pool: Handle, attribute: u32, value: Buffer) =
                engine()?.pool(pool)?.attribute(attribute, value);
            $set(pool: Handle, attribute: u32, value: Buffer) =
                engine()?.pool(pool)?.set_attribute(attribute, value);
            $set_access(
                pool: Handle,
                accesses: In<Access>,
                count: usize,
            ) = {
                let pool = engine()?.pool(pool)?;
                for index in 0..count {
                    let (place, open) = accesses.at(index)?.read()?;
                    pool.open_to(ordinal(place.device()?)?, open);
                }
                Ok(())
            };
        }
    };
}
