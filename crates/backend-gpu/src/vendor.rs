//! The parts in which vendors differ: the meaning of codes, the opening and description of devices, and the building of
//! programs.
#![expect(unsafe_code, reason = "declares unsafe functions")]

use std::ffi::{CStr, CString, c_int};
use std::fmt::{Debug, Display};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, Weak};

use backend_support::Binding;
use runtime_core::contract::ParamInfo;
use runtime_core::{
    DeviceInfo, Error, ErrorKind, ImageFormat, ModuleImage, NativeHandle, OriginKind, Result,
};

use crate::api::Api;
use crate::context::Context;
use crate::device::Device;
use crate::handle::{Function, Module, Stream as Handle};
use crate::pool::Pooled;
use crate::stream::Stream;

/// A vendor of devices: CUDA or HIP.
pub trait Vendor:
    Clone + Copy + Debug + Eq + Codes + Contexts<Self> + Kernels<Self> + Programs<Self>
{
    /// The vendor's interface.
    type Api: Api;
    /// The vendor's words for error messages.
    const WORDS: Words;
}

/// A vendor's words for error messages.
#[derive(Debug)]
pub struct Words {
    /// The backend, and the interface of its native handles, such as `cuda`.
    pub backend: &'static str,
    /// The name of the interface, such as `CUDA`.
    pub interface: &'static str,
    /// The word for the library that executes calls, such as `driver`.
    pub library: &'static str,
    /// The message for a device that does not work.
    pub broken: &'static str,
    /// The message for a device after a fault.
    pub lost: &'static str,
    /// The message for a device that a fault has broken until the process ends.
    pub lost_for_good: &'static str,
}

/// The meaning of codes. 0 is success.
pub trait Codes {
    /// Work is not finished. This is no failure.
    const NOT_READY: u32;
    /// An allocation failed for lack of memory.
    const OUT_OF_MEMORY: u32;
    /// There is no kernel with that name.
    const NOT_FOUND: u32;
    /// There is no such function, or the function is not supported.
    const NOT_SUPPORTED: u32;
    /// The devices already have access to each other in this direction.
    const PEER_ACCESS_ALREADY_ENABLED: u32;

    /// A fault has made the context unusable. Every later call in the context then returns the code again.
    const STICKY: &'static [u32];
    /// A stream is being captured, and therefore does not run the work enqueued on it.
    const OF_CAPTURE: RangeInclusive<u32>;
    /// The kinds of other codes. A code that is in no list is [`Driver`](ErrorKind::Driver).
    const KINDS: &'static [(ErrorKind, &'static [u32])];

    /// A function that the library may lack.
    ///
    /// # Errors
    ///
    /// [`NOT_SUPPORTED`](Self::NOT_SUPPORTED) if it does.
    fn optional<F>(function: Option<F>) -> Result<F, u32> {
        function.ok_or(Self::NOT_SUPPORTED)
    }

    /// Whether a code is [`STICKY`](Self::STICKY).
    fn is_sticky(code: u32) -> bool {
        Self::STICKY.contains(&code)
    }

    /// The kind of the error for a code.
    fn kind(code: u32) -> ErrorKind {
        if Self::is_sticky(code) {
            return ErrorKind::DeviceLost;
        }
        let kind = Self::KINDS.iter().find(|(_, codes)| codes.contains(&code));
        kind.map_or(ErrorKind::Driver, |(kind, _)| *kind)
    }
}

/// A list of codes of an enumeration, as numbers.
#[macro_export]
macro_rules! codes {
    ($type:ident: $($code:ident),* $(,)?) => { &[$($type::$code as u32),*] };
}

/// Creates the error for a `code` that a call returned.
#[cold]
pub fn error<V: Vendor>(
    api: &V::Api,
    operation: &'static str,
    code: u32,
    what: impl Display,
) -> Error {
    Error::new(V::kind(code), operation, what.to_string()).with_driver(api.name(code), code.into())
}

/// The contexts in use. The drop of a context removes its entry, so that no thread opens a broken context during its
/// release.
pub type InUse<V> = Mutex<Vec<(usize, Weak<Context<V>>)>>;

/// The discovery, opening and release of devices, and other vendor-specific operations.
pub trait Contexts<V: Vendor>: Send + Sync + 'static {
    /// Whether pools outlive a context that a fault broke.
    const POOLS_OUTLIVE_FAULTS: bool;
    /// The message for a place that could not be released.
    const NOT_RELEASED: &str;
    /// Whether the number of bytes that a pool keeps when it is trimmed includes the bytes in use.
    const TRIM_COUNTS_USED: bool;

    /// The library, which is looked for once per process, and the number of its devices.
    ///
    /// # Errors
    ///
    /// `Unavailable` if there is no library or device to use, `Driver` if the library is broken.
    fn library() -> Result<(&'static V::Api, usize)>;

    /// The contexts in use.
    ///
    /// # Safety
    ///
    /// The caller passes to a context only codes that the library returned for that context. The context concludes from
    /// them whether work is finished.
    unsafe fn in_use() -> &'static InUse<V>;

    /// Queries all properties that a device reports without a context.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    fn describe(api: &'static V::Api, ordinal: usize) -> Result<Description<V>>;

    /// Retains a device until it is [released](Self::release). Returns its number and its place.
    ///
    /// # Errors
    ///
    /// The library's code.
    fn retain(api: &V::Api, ordinal: usize) -> Result<(c_int, usize), u32>;

    /// Called after a context was opened and works.
    fn opened(context: &Context<V>);

    /// The reason why a device cannot be opened again after a fault, if `code` says so.
    fn stays_lost(code: u32) -> Option<&'static str>;

    /// Releases a place that is no longer used. Emits no `tracing` events, because a lock is held.
    ///
    /// # Errors
    ///
    /// The library's code.
    fn release(context: &Context<V>) -> Result<(), u32>;

    /// Records memory that cannot be freed because of a fault.
    fn leave(context: &Context<V>, memory: Pooled);

    /// Whether the handle means a different stream in each thread.
    fn is_per_thread(stream: Handle) -> bool;

    /// Refuses a handle that does not belong to a stream of the context.
    ///
    /// # Errors
    ///
    /// The reason.
    ///
    /// # Safety
    ///
    /// The handle belongs to a stream, or is one of the vendor's handles for default streams.
    unsafe fn check_stream(context: &Context<V>, handle: NativeHandle) -> Result<(), Unfit>;

    /// Looks up an address, which may be any number. Returns `None` if the library does not know it.
    fn address_info(context: &Context<V>, address: u64) -> Option<AddressInfo>;

    /// The current load of a device.
    fn busy(info: &DeviceInfo) -> Busy;
}

/// The properties of a device, as the library reports them.
#[derive(Debug)]
pub struct Description<V: Vendor> {
    /// The general properties, all except the priorities of streams.
    pub info: DeviceInfo,
    /// The target of compiled programs.
    pub target: V::Target,
    /// Whether cooperative launches, whose blocks all run at once, are supported.
    pub cooperative: bool,
    /// Whether the device has memory pools.
    pub pools: bool,
    /// Whether the host and the device may use managed memory at the same time.
    pub managed: bool,
    /// Whether host memory of the program can be page-locked for it.
    pub registration: bool,
    /// Whether streams can wait for numbers that the host writes.
    pub gates: bool,
    /// Whether there are kernels for region copies for it.
    pub regions: bool,
    /// Whether the device supports graphs.
    pub graphs: bool,
    /// Whether the device can copy to other devices.
    pub peers: bool,
}

/// The reason why a foreign handle is refused.
#[derive(Debug)]
pub enum Unfit {
    /// A reason in words, to follow the handle in a message.
    Wrong(String),
    /// The code with which the library refused the handle.
    Code(u32),
}

/// Facts about an address.
#[derive(Clone, Copy, Debug)]
pub struct AddressInfo {
    /// The number of the device; negative if the memory belongs to no device.
    pub device: c_int,
    /// The kind of memory.
    pub kind: OriginKind,
    /// The first address of the allocation, and its length in bytes.
    pub range: Option<(u64, u64)>,
}

/// The load of a device, from 0 to 1. `None` if it is not reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    /// The load of its processors.
    pub processor: Option<f32>,
    /// The load of its memory.
    pub memory: Option<f32>,
}

/// One of the backend's own kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinKernel {
    /// The kernel for region copies that gets its memories with this binding.
    Regions(Binding),
    /// The kernel that sets addresses in a table of memories.
    RegionTable,
}

/// Modules and kernels.
pub trait Kernels<V: Vendor> {
    /// The backend's own kernels on a device.
    type Builtin: Debug + Send + Sync;
    /// The maximum number of blocks of a launch for region copies.
    const MAX_REGION_BLOCKS: u32;

    /// Returns the backend's own kernels, before any is loaded.
    fn builtin_kernels(context: &Arc<Context<V>>) -> Self::Builtin;

    /// Returns one of the backend's own kernels for region copies.
    ///
    /// # Errors
    ///
    /// The reason why it could not be loaded.
    fn region_function(device: &Device<V>, kernel: BuiltinKernel) -> Result<Function>;

    /// Enqueues a fill of memory with a pattern of four words.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of the device. It consists of whole patterns and is aligned for them.
    unsafe fn fill_pattern(
        stream: &Stream<V>,
        to: u64,
        bytes: usize,
        words: [u32; 4],
    ) -> Result<()>;

    /// Loads code.
    ///
    /// # Errors
    ///
    /// The reason why it could not be loaded.
    fn load(context: &Context<V>, code: &Code<V>) -> Result<Module, NotLoaded>;

    /// The end of the message about a missing kernel, after a semicolon: the kernels that exist. Empty if they are not
    /// known.
    fn instead_of(signatures: &V::Signatures, kernel: &str) -> String;

    /// The parameters of a function, if they are known.
    fn parameters(
        context: &Context<V>,
        function: Function,
        signatures: &V::Signatures,
        kernel: &str,
    ) -> Option<Vec<ParamInfo>>;

    /// The number of bytes of dynamic shared memory that launches may use without a call of
    /// [`raise_shared`](Self::raise_shared). `most` is the number that launches can use at most. The `declared` bytes
    /// of the kernel are not part of it.
    fn granted(most: u32, declared: u32) -> u32;

    /// Allows launches of a function to use that many bytes of dynamic shared memory, more than were granted.
    ///
    /// # Errors
    ///
    /// The library's code.
    fn raise_shared(context: &Context<V>, function: Function, bytes: u32) -> Result<(), u32>;

    /// Returns a text that says that a kernel has at most that many bytes of shared memory.
    fn max_shared(bytes: u32) -> String;
}

/// The reason why code could not be loaded.
#[derive(Debug)]
pub struct NotLoaded {
    /// The library's code.
    pub code: u32,
    /// The reason in words.
    pub about: String,
    /// The log of the library's own compiler.
    pub log: Option<String>,
}

/// Code that can be loaded, and the known facts about its kernels.
#[derive(Debug)]
pub struct Code<V: Vendor> {
    /// The bytes to load.
    pub image: Vec<u8>,
    /// The parameters of its kernels.
    pub signatures: V::Signatures,
}

/// Conversion of module images to code that can be loaded.
pub trait Programs<V: Vendor> {
    /// The target of programs: a device's architecture under a library.
    type Target: Debug + Send + Sync;
    /// The parameters of a program's kernels.
    type Signatures: Debug + Send + Sync;
    /// A compiler and its kind of output.
    type Compiler;

    /// The format of images that are compiled.
    const SOURCE: ImageFormat;
    /// The name of a file in this format.
    const SOURCE_FILE: &'static str;

    /// The code of an image that needs no compiler. Returns `None` if the image is of another kind.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if the image is incomplete.
    fn ready(target: &Self::Target, image: &ModuleImage<'_>) -> Result<Option<Code<V>>>;

    /// How to compile with these options of the user.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if there is no compiler for what the target executes.
    fn recipe(target: &Self::Target, options: Vec<String>) -> Result<Recipe<V>>;

    /// Compiles a source. Returns the output, which the cache stores, and the compiler's log.
    ///
    /// # Errors
    ///
    /// `InvalidModule` with the compiler's log.
    fn compile(
        compiler: &Self::Compiler,
        source: &CStr,
        options: &[CString],
    ) -> Result<(Vec<u8>, String)>;

    /// Extracts the code from a compiler's output.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if the output is incomplete.
    fn code(target: &Self::Target, compiled: Vec<u8>) -> Result<Code<V>>;

    /// Splits a compiler's output into files for people to read.
    fn files(compiled: &[u8]) -> Vec<(&'static str, &[u8])>;
}

/// How a program is compiled.
#[derive(Debug)]
pub struct Recipe<V: Vendor> {
    /// The compiler.
    pub compiler: V::Compiler,
    /// All options.
    pub options: Vec<String>,
    /// Options that the compiler adds to `options`.
    pub added: Vec<String>,
    /// Other inputs that the result depends on.
    pub depends: Vec<String>,
    /// Whether these are all inputs of the result, apart from included files.
    pub is_known: bool,
}
