//! Functions that differ only in their names from driver to driver.
//!
//! A stand-in exports them by [`functions`](crate::functions) and the other macros of this file, in a module with these
//! names in scope: the types of [`abi`](crate::abi) for the arguments; `answer`, which turns a result into a code;
//! `engine`; `current`, the engine and the current context of the thread; `current_to_wait`, the same for calls that a
//! capture may forbid; `ordinal`, which checks the number of a device; `int`, which converts a number.

/// Exports functions, each of which returns the code of its expression.
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

/// Exports the functions that describe devices. `attribute` is in scope, which returns the value of an attribute.
#[macro_export]
macro_rules! device_functions {
    (
        get: $get:ident, name: $name:ident = $title:expr, uuid: $uuid:ident, memory: $memory:ident,
        attribute: $attribute:ident, can_access: $can_access:ident,
        priorities: $priorities:ident = $range:expr $(,)?
    ) => {
        $crate::functions! {
            $get(device: Out<i32>, number: i32) = device.put(int(ordinal(number)?));
            $name(name: Buffer, room: i32, device: i32) = {
                ordinal(device)?;
                name.put_text($title, usize::try_from(room).unwrap_or(0))
            };
            $uuid(uuid: Out<[u8; 16]>, device: i32) = {
                let mut bytes = *b"stand-in device ";
                bytes[15] = u8::try_from(ordinal(device)?).unwrap_or(u8::MAX);
                uuid.put(bytes)
            };
            $memory(bytes: Out<usize>, device: i32) = {
                ordinal(device)?;
                bytes.put(engine()?.config().memory)
            };
            $attribute(value: Out<i32>, number: u32, device: i32) =
                value.put(int(attribute(number, ordinal(device)?)?));
            $can_access(can: Out<i32>, device: i32, peer: i32) =
                can.put((ordinal(device)? != ordinal(peer)?).into());
            $priorities(least: Out<i32>, greatest: Out<i32>) = {
                current()?.1.check()?;
                let [max_urgent, least_urgent] = $range;
                greatest.offer(max_urgent);
                least.offer(least_urgent);
                Ok(())
            };
        }

        /// Checks the number of a device.
        pub(crate) fn ordinal(device: i32) -> $crate::Result<usize> {
            let devices = engine()?.config().devices;
            let device = usize::try_from(device).ok().filter(|device| *device < devices);
            device.ok_or($crate::Code::INVALID_DEVICE)
        }

        /// Converts a number to the type of the interface. The largest number of the type stands for all larger
        /// numbers.
        pub(crate) fn int(value: impl TryInto<i32>) -> i32 {
            value.try_into().unwrap_or(i32::MAX)
        }
    };
}

/// Exports the functions of streams and events. `current_handle` is in scope, which converts the handles of default
/// streams.
#[macro_export]
macro_rules! stream_functions {
    (
        create: $create:ident by $creating:ident, destroy: $destroy:ident, query: $query:ident,
        synchronize: $synchronize:ident, wait: $wait:ident with flags up to $wait_flags:literal,
        event_create: $event_create:ident with flags in $event_flags:literal,
        event_destroy: $event_destroy:ident, event_record: $event_record:ident,
        event_query: $event_query:ident, event_synchronize: $event_synchronize:ident,
        event_elapsed: $event_elapsed:ident $(,)?
    ) => {
        $crate::functions! {
            $create(stream: Out<Handle>, flags: u32, _priority: i32) = {
                let (engine, context) = $creating()?;
                if flags > 1 {
                    return Err($crate::Code::INVALID_VALUE);
                }
                stream.put(engine.stream_create(&context)?)
            };
            $destroy(stream: Handle) = engine()?.stream_destroy(stream);
            $query(stream: Handle) =
                waiting(|engine| engine.stream_query(current_handle(engine, stream)?));
            $synchronize(stream: Handle) =
                waiting(|engine| engine.stream_synchronize(current_handle(engine, stream)?));
            $wait(stream: Handle, event: Handle, flags: u32) = {
                let (engine, context) = current()?;
                if flags > $wait_flags {
                    return Err($crate::Code::INVALID_VALUE);
                }
                engine.stream_wait(&context, stream, event)
            };
            $event_create(event: Out<Handle>, flags: u32) = {
                const DISABLE_TIMING: u32 = 2;
                let (engine, context) = current()?;
                if flags & !$event_flags != 0 {
                    return Err($crate::Code::INVALID_VALUE);
                }
                event.put(engine.event_create(&context, flags & DISABLE_TIMING == 0)?)
            };
            $event_destroy(event: Handle) = engine()?.event_destroy(event);
            $event_record(event: Handle, stream: Handle) = {
                let (engine, context) = current()?;
                engine.event_record(&context, event, stream)
            };
            $event_query(event: Handle) = waiting(|engine| engine.event_query(event));
            $event_synchronize(event: Handle) = waiting(|engine| engine.event_synchronize(event));
            $event_elapsed(milliseconds: Out<f32>, start: Handle, end: Handle) =
                milliseconds.put(engine()?.event_elapsed(start, end)?);
        }

        /// Makes a call that may wait, unless a capture forbids it.
        fn waiting(call: impl FnOnce(&$crate::Engine) -> $crate::Result<()>) -> $crate::Result<()> {
            let engine = engine()?;
            engine.may_wait($crate::process::mode())?;
            call(engine)
        }
    };
}

/// Exports the functions of captures and graphs.
#[macro_export]
macro_rules! graph_functions {
    (
        exchange_mode: $exchange_mode:ident, begin: $begin:ident, end: $end:ident,
        instantiate: $instantiate:ident, launch: $launch:ident, exec_destroy: $exec_destroy:ident,
        destroy: $destroy:ident $(,)?
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
            $instantiate(executable: Out<Handle>, graph: Handle, flags: u64) = match flags {
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

/// Exports the functions of copies and fills. `device_of` is in scope, which returns the device of the place of a peer
/// copy, whose type is `$place`.
#[macro_export]
macro_rules! copy_functions {
    (
        to: $to:ident, from: $from:ident, within: $within:ident, peer: $peer:ident between $place:ty,
        fill_8: $fill_8:ident, fill_16: $fill_16:ident, fill_32: $fill_32:ident $(,)?
    ) => {
        $crate::functions! {
            $to(to: u64, from: *mut u8, len: usize, stream: Handle) =
                copy($crate::Endpoint::Device(to), $crate::Endpoint::Host(from), len, stream);
            $from(to: *mut u8, from: u64, len: usize, stream: Handle) =
                copy($crate::Endpoint::Host(to), $crate::Endpoint::Device(from), len, stream);
            $within(to: u64, from: u64, len: usize, stream: Handle) =
                copy($crate::Endpoint::Device(to), $crate::Endpoint::Device(from), len, stream);
            $peer(
                to: u64, to_place: $place, from: u64, from_place: $place, len: usize, stream: Handle
            ) = {
                let engine = engine()?;
                for (address, place) in [(to, to_place), (from, from_place)] {
                    let device = device_of(engine, place)?;
                    let memory = engine.memory_at(address).filter(|_| len > 0);
                    if memory.is_some_and(|memory| {
                        !memory.is_pinned && !memory.is_managed && memory.device != device
                    }) {
                        return Err($crate::Code::INVALID_VALUE);
                    }
                }
                copy($crate::Endpoint::Device(to), $crate::Endpoint::Device(from), len, stream)
            };
            $fill_8(address: u64, value: u8, count: usize, stream: Handle) =
                fill(address, &[value], count, stream);
            $fill_16(address: u64, value: u16, count: usize, stream: Handle) =
                fill(address, &value.to_le_bytes(), count, stream);
            $fill_32(address: u64, value: u32, count: usize, stream: Handle) =
                fill(address, &value.to_le_bytes(), count, stream);
        }

        /// Copies bytes in the current context.
        fn copy(
            to: $crate::Endpoint,
            from: $crate::Endpoint,
            bytes: usize,
            stream: Handle,
        ) -> $crate::Result<()> {
            let (engine, context) = current()?;
            // SAFETY: callers of the driver guarantee the bytes, until the copy is finished.
            unsafe { engine.copy(&context, to, from, bytes, stream) }
        }

        /// Fills memory in the current context.
        fn fill(address: u64, pattern: &[u8], count: usize, stream: Handle) -> $crate::Result<()> {
            let (engine, context) = current()?;
            engine.fill(&context, address, pattern, count, stream)
        }
    };
}

/// Exports the functions that allocate and free memory. `allocate` is in scope, which writes the address of an
/// allocation.
#[macro_export]
macro_rules! memory_functions {
    (
        info: $info:ident, allocate: $allocate:ident, managed: $managed:ident,
        host: $host:ident with flags in $host_flags:literal, free: $free:ident,
        free_host: $free_host:ident,
        register: $register:ident with flags in $register_flags:literal,
        unregister: $unregister:ident $(,)?
    ) => {
        $crate::functions! {
            $info(free: Out<usize>, total: Out<usize>) = {
                let (engine, context) = current()?;
                context.check()?;
                free.put(engine.free_memory(context.device())?)?;
                total.put(engine.config().memory)
            };
            $allocate(address: Out<u64>, bytes: usize) =
                allocate(address, bytes, |engine, context| engine.allocate(context, bytes));
            $managed(address: Out<u64>, bytes: usize, flags: u32) =
                allocate(address, bytes, |engine, context| match flags {
                    1 | 2 => engine.allocate_managed(context, bytes),
                    _ => Err($crate::Code::INVALID_VALUE),
                });
            $host(pointer: Out<u64>, bytes: usize, flags: u32) =
                allocate(pointer, bytes, |engine, context| match flags & !$host_flags {
                    0 => engine.allocate_pinned(context, bytes),
                    _ => Err($crate::Code::INVALID_VALUE),
                });
            $free(address: u64) = {
                let (engine, context) = current_to_wait()?;
                if address == 0 { Ok(()) } else { engine.free(&context, address) }
            };
            $free_host(pointer: u64) = {
                let (engine, context) = current_to_wait()?;
                if pointer == 0 { Ok(()) } else { engine.free_pinned(&context, pointer) }
            };
            $register(pointer: *mut u8, bytes: usize, flags: u32) = {
                let (engine, context) = current_to_wait()?;
                if flags & !$register_flags != 0 {
                    return Err($crate::Code::INVALID_VALUE);
                }
                // SAFETY: callers of the driver keep the memory until they unregister it.
                unsafe { engine.register(&context, pointer, bytes) }
            };
            $unregister(pointer: u64) = {
                let (engine, context) = current_to_wait()?;
                engine.unregister(&context, pointer)
            };
        }
    };
}

/// Exports functions of memory pools.
#[macro_export]
macro_rules! pool_functions {
    (
        create: $create:ident, trim: $trim:ident = $trimming:ident by $waiting:ident,
        destroy: $destroy:ident, get: $get:ident, set: $set:ident, set_access: $set_access:ident $(,)?
    ) => {
        $crate::functions! {
            $create(pool: Out<Handle>, properties: In<Properties>) = {
                let device = ordinal(properties.get()?.place()?.device()?)?;
                pool.put($waiting()?.pool_create(device)?)
            };
            $trim(pool: Handle, keep: usize) = {
                $waiting()?.pool(pool)?.$trimming(keep);
                Ok(())
            };
            $destroy(pool: Handle) = engine()?.pool_destroy(pool);
            $get(pool: Handle, attribute: u32, value: Buffer) =
                engine()?.pool(pool)?.attribute(attribute, value);
            $set(pool: Handle, attribute: u32, value: Buffer) =
                engine()?.pool(pool)?.set_attribute(attribute, value);
            $set_access(pool: Handle, accesses: In<Access>, count: usize) = {
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

/// Exports functions of modules, kernels and launches. `$query` and `$cooperative` are functions that return an error
/// if the driver lacks queries about kernels, or cooperative launches.
#[macro_export]
macro_rules! kernel_functions {
    (
        unload: $unload:ident, function: $function:ident by $loading:ident,
        resident_blocks: $resident_blocks:ident if $query:ident, launch: $launch:ident,
        launch_cooperative: $launch_cooperative:ident if $cooperative:ident $(,)?
    ) => {
        $crate::functions! {
            $unload(module: Handle) = current_to_wait()?.0.module_unload(module);
            $function(function: Out<Handle>, module: Handle, name: Text) = {
                let name = str::from_utf8(name.bytes()?).map_err(|_| $crate::Code::NOT_FOUND)?;
                if name.is_empty() {
                    return Err($crate::Code::INVALID_VALUE);
                }
                function.put($loading()?.0.function(module, name)?)
            };
            $resident_blocks(blocks: Out<i32>, function: Handle, threads: i32, shared: usize) = {
                $query()?;
                let threads = u32::try_from(threads).map_err(|_| $crate::Code::INVALID_VALUE)?;
                let function = engine()?.kernel(function)?;
                blocks.put(int(function.blocks_per_multiprocessor(threads, shared)))
            };
            $launch(
                function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
                block_z: u32, shared: u32, stream: Handle, arguments: In<*const ::std::ffi::c_void>,
                extra: Buffer,
            ) = {
                if !extra.start().is_null() {
                    return Err($crate::Code::NOT_SUPPORTED);
                }
                let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
                launch(function, grid, block, shared, stream, arguments, false)
            };
            $launch_cooperative(
                function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
                block_z: u32, shared: u32, stream: Handle, arguments: In<*const ::std::ffi::c_void>,
            ) = {
                $cooperative()?;
                let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
                launch(function, grid, block, shared, stream, arguments, true)
            };
        }

        /// Launches a kernel in the current context.
        fn launch(
            function: Handle,
            grid: [u32; 3],
            block: [u32; 3],
            shared: u32,
            stream: Handle,
            arguments: In<*const ::std::ffi::c_void>,
            is_cooperative: bool,
        ) -> $crate::Result<()> {
            let dynamic_shared = shared as usize;
            let geometry = $crate::ptx::Geometry { grid, block, dynamic_shared, is_cooperative };
            let (engine, context) = current()?;
            let function = engine.kernel(function)?;
            if is_cooperative {
                function.check_cooperative(&geometry)?;
            }
            let params = arguments.arguments(function.entry().params())?;
            engine.launch(&context, &function, geometry, params, stream)
        }
    };
}
