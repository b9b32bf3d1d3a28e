//! What a vendor decides: the meaning of codes, how devices are opened and described, and how programs are made.
#![expect(unsafe_code, reason = "declares what is unsafe to a caller")]

use std::ffi::{CStr, CString, c_int};
use std::fmt::{Debug, Display};
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
    /// Its interface.
    type Api: Api;
    /// What errors call it.
    const WORDS: Words;
}

/// What errors call a vendor's things.
#[derive(Debug)]
pub struct Words {
    /// The backend, and the interface of its native handles: `cuda`.
    pub backend: &'static str,
    /// The interface: `CUDA`.
    pub interface: &'static str,
    /// What executes calls: `driver`.
    pub library: &'static str,
    /// Of a device that does not work.
    pub broken: &'static str,
    /// Of a device after a fault.
    pub lost: &'static str,
}

/// What codes mean. 0 is success.
pub trait Codes {
    /// Work is not over; no failure.
    const NOT_READY: u32;
    /// No room for an allocation.
    const OUT_OF_MEMORY: u32;
    /// No kernel of that name.
    const NOT_FOUND: u32;
    /// There is no such function, or it cannot do what it is for.
    const NOT_SUPPORTED: u32;
    /// One device reaches the other already.
    const PEER_ACCESS_ALREADY_ENABLED: u32;

    /// Whether the code says that a program went wrong so that its context is of no use any more: every later call in the
    /// context returns it again.
    fn is_sticky(code: u32) -> bool;

    /// Whether the code says that a stream is captured, so that what is enqueued on it does not run.
    fn is_of_capture(code: u32) -> bool;

    /// The kind of its error.
    fn kind(code: u32) -> ErrorKind;
}

/// The error for a `code` that a call returned.
#[cold]
pub fn error<V: Vendor>(
    api: &V::Api,
    operation: &'static str,
    code: u32,
    what: impl Display,
) -> Error {
    Error::new(V::kind(code), operation, what.to_string()).with_driver(api.name(code), code.into())
}

/// The contexts in use. Who drops one takes it off, so that nobody opens a broken one while it is being released.
pub type InUse<V> = Mutex<Vec<(usize, Weak<Context<V>>)>>;

/// How devices are found, opened and given up, and what is theirs alone.
pub trait Contexts<V: Vendor>: Send + Sync + 'static {
    /// Whether pools outlive the context that a fault broke.
    const POOLS_OUTLIVE_FAULTS: bool;
    /// Whether what a trimmed pool keeps counts what is in use.
    const TRIM_COUNTS_USED: bool;

    /// The library, looked for once per process, and how many devices it has.
    ///
    /// # Errors
    ///
    /// `Unavailable` where there is nothing to use, `Driver` where it is broken.
    fn library() -> Result<(&'static V::Api, usize)>;

    /// The contexts in use.
    ///
    /// # Safety
    ///
    /// Codes that a context is told are those that the library returned for it: what they say of work is believed.
    unsafe fn in_use() -> &'static InUse<V>;

    /// Asks for everything that is told of a device without a context.
    ///
    /// # Errors
    ///
    /// What the library reports.
    fn describe(api: &'static V::Api, ordinal: usize) -> Result<Description<V>>;

    /// The number and the place of a device, which is kept until it is [released](Self::release).
    ///
    /// # Errors
    ///
    /// The library's code.
    fn retain(api: &V::Api, ordinal: usize) -> Result<(c_int, usize), u32>;

    /// A context was opened, and works.
    fn opened(context: &Context<V>);

    /// Why a device cannot be opened again after a fault, if `code` says that it is that.
    fn stays_lost(code: u32) -> Option<&'static str>;

    /// Gives up a place that nothing uses any more.
    fn release(context: &Context<V>);

    /// Takes note of memory that a fault keeps from being freed.
    fn leave(context: &Context<V>, memory: Pooled);

    /// Whether the handle is another stream in every thread.
    fn is_per_thread(stream: Handle) -> bool;

    /// Refuses a handle that is of no stream of the context.
    ///
    /// # Errors
    ///
    /// Why not.
    ///
    /// # Safety
    ///
    /// The handle is of a stream, if it is not one of those that the vendor has for default streams.
    unsafe fn check_stream(context: &Context<V>, handle: NativeHandle) -> Result<(), Unfit>;

    /// Asks for an address, which may be any number; `None` if the library does not know it.
    fn known(context: &Context<V>, address: u64) -> Option<Known>;

    /// How busy a device is.
    fn busy(info: &DeviceInfo) -> Busy;
}

/// A device as it describes itself.
#[derive(Debug)]
pub struct Description<V: Vendor> {
    /// All but the priorities of streams.
    pub info: DeviceInfo,
    /// What programs are made for.
    pub target: V::Target,
    /// Whether all blocks of a launch can run at once.
    pub cooperative: bool,
    /// Whether it has memory pools.
    pub pools: bool,
    /// Whether host and device may use managed memory at once.
    pub managed: bool,
    /// Whether there are kernels for region copies.
    pub regions: bool,
    /// Whether it has graphs.
    pub graphs: bool,
    /// Whether it copies to other devices.
    pub peers: bool,
}

/// Why a handle of others is not taken.
#[derive(Debug)]
pub enum Unfit {
    /// In words that follow the handle.
    Wrong(String),
    /// The library does not take it.
    Code(u32),
}

/// What is known of an address.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The number of the device; negative for what is of none.
    pub device: c_int,
    /// What memory it is.
    pub kind: OriginKind,
    /// The first address of the allocation, and its length.
    pub range: Option<(u64, u64)>,
}

/// How busy a device is, from 0 to 1, where it is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    /// Its processors.
    pub processor: Option<f32>,
    /// Its memory.
    pub memory: Option<f32>,
}

/// A kernel of the backend's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Region copies by the kernel that gets its memories so.
    Regions(Binding),
    /// Sets the addresses of a table of memories.
    RegionTable,
}

/// Modules, kernels and what is made of them.
pub trait Kernels<V: Vendor> {
    /// Kernels of the backend's own on a device.
    type Own: Debug + Send + Sync;
    /// Most blocks of a launch for region copies.
    const MOST_REGION_BLOCKS: u32;

    /// The backend's own kernels, none of them loaded.
    fn own(context: &Arc<Context<V>>) -> Self::Own;

    /// A kernel for region copies.
    ///
    /// # Errors
    ///
    /// What kept it from being loaded.
    fn region_function(device: &Device<V>, kernel: Own) -> Result<Function>;

    /// Enqueues filling memory with a pattern of four words.
    ///
    /// # Errors
    ///
    /// What the library reports.
    ///
    /// # Safety
    ///
    /// The range lies inside a memory of the device, and is made of whole patterns at aligned places.
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
    /// Why not.
    fn load(context: &Context<V>, code: &Code<V>) -> Result<Module, NotLoaded>;

    /// What there is instead of a kernel that is not there, behind a semicolon; nothing if that is not known.
    fn instead_of(signatures: &V::Signatures, kernel: &str) -> String;

    /// The parameters of a function, as far as they are known.
    fn parameters(
        context: &Context<V>,
        function: Function,
        signatures: &V::Signatures,
        kernel: &str,
    ) -> Option<Vec<ParamInfo>>;

    /// Bytes of dynamic shared memory that launches may have unasked, of `most`, beside what the kernel declares.
    fn granted(most: u32, declared: u32) -> u32;

    /// Lets launches of a function have that many bytes of dynamic shared memory, more than was granted.
    ///
    /// # Errors
    ///
    /// The library's code.
    fn raise_shared(context: &Context<V>, function: Function, bytes: u32) -> Result<(), u32>;

    /// In words, that a kernel has at most so many.
    fn most_shared(bytes: u32) -> String;
}

/// Why code does not load.
#[derive(Debug)]
pub struct NotLoaded {
    /// What the library returned.
    pub code: u32,
    /// In words.
    pub about: String,
    /// What the library's own compiler said.
    pub log: Option<String>,
}

/// Code that can be loaded, and what is known of its kernels.
#[derive(Debug)]
pub struct Code<V: Vendor> {
    /// What is loaded.
    pub image: Vec<u8>,
    /// The parameters of its kernels.
    pub signatures: V::Signatures,
}

/// From a module's image to code that can be loaded.
pub trait Programs<V: Vendor> {
    /// What programs are made for: a device's architecture under a library.
    type Target: Debug + Send + Sync;
    /// The parameters of a program's kernels.
    type Signatures: Debug + Send + Sync;
    /// A compiler, and what it is to make.
    type Compiler;

    /// The format that is compiled.
    const SOURCE: ImageFormat;
    /// A name for a file of it.
    const SOURCE_FILE: &'static str;

    /// The code of an image that needs no compiler; `None` if the image is of another kind.
    ///
    /// # Errors
    ///
    /// `InvalidModule` for an image that is not whole.
    fn ready(target: &Self::Target, image: &ModuleImage<'_>) -> Result<Option<Code<V>>>;

    /// How to compile with these options of a user's.
    ///
    /// # Errors
    ///
    /// `InvalidModule` without a compiler that makes what the target executes.
    fn recipe(target: &Self::Target, options: Vec<String>) -> Result<Recipe<V>>;

    /// Compiles: what the cache keeps, and the compiler's log.
    ///
    /// # Errors
    ///
    /// `InvalidModule` with the compiler's log.
    fn compile(
        compiler: &Self::Compiler,
        source: &CStr,
        options: &[CString],
    ) -> Result<(Vec<u8>, String)>;

    /// The code in what was compiled.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if it is not whole.
    fn code(target: &Self::Target, compiled: Vec<u8>) -> Result<Code<V>>;

    /// What was compiled as files, for people to look at.
    fn files(compiled: &[u8]) -> Vec<(&'static str, &[u8])>;
}

/// How a program is compiled.
#[derive(Debug)]
pub struct Recipe<V: Vendor> {
    /// The compiler.
    pub compiler: V::Compiler,
    /// All options.
    pub options: Vec<String>,
    /// Options that the compiler adds to those.
    pub added: Vec<String>,
    /// What else the result depends on.
    pub depends: Vec<String>,
    /// Whether that is all it depends on, but for files that are included.
    pub is_known: bool,
}
